"""Classification of small graphs: a batch of them is one graph of all their vertices, and the vertices' vectors add up to their graph's."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.small_graphs import SmallGraphs, load_small_graphs
from hoptrain.samplers import Block
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.gnn import Norm
from hoptrain.trainers.models.layers import Arch
from hoptrain.trainers.tasks.item_classifier import ItemClassifier
from hoptrain.trainers.tasks.items import ItemDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import opened

Readout = Literal["sum", "mean"]


class GraphBatch(NamedTuple):
    """G graphs with V vertices and E edges in all.

    Attributes:
        x: (V, F) float32 features.
        indptr: (V+1,) int64, in-neighbours as CSC.
        indices: (E,) int64 vertices of the batch.
        ptr: (G+1,) int64, where each graph's vertices begin.
    """

    x: Tensor
    indptr: Tensor
    indices: Tensor
    ptr: Tensor


class SmallGraphsDataModule(ItemDataModule):
    """Loads many small graphs and joins those of a batch."""

    data: SmallGraphs

    def __init__(
        self, dataset: str | SmallGraphs, root: str | None = None, fold: int = 0, batch_size: int = 32, seed: int | None = None
    ) -> None:
        """Open the graphs.

        Args:
            dataset: name of a .npz file, for instance tu_mutag, or in Python ``SmallGraphs``.
            root: folder with the file; by default $HOPTRAIN_DATA.
            fold: the test fold, 0 to 9; the next one is for validation.
            batch_size: graphs per rank and step.
            seed: seed of the order; by default that of seed_everything.
        """
        super().__init__(opened(dataset, load_small_graphs, root=root, fold=fold), batch_size, seed)

    @property
    def num_features(self) -> int:
        """F."""
        return self.data.vertices.num_features

    def collate(self, items: Array, address: Address | None) -> tuple[GraphBatch, Tensor]:
        """The graphs of a batch as one, and their classes."""
        data, graph = self.data, self.data.vertices.graph
        sizes = data.ptr[items + 1] - data.ptr[items]
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        nodes = _ranges(data.ptr[items], sizes)
        degrees = graph.indptr[nodes + 1].astype(np.int64) - graph.indptr[nodes]
        begins, ends = graph.indptr[data.ptr[items]].astype(np.int64), graph.indptr[data.ptr[items + 1]].astype(np.int64)
        edges = _ranges(begins, ends - begins)
        indices = graph.indices[edges] + np.repeat(ptr[:-1] - data.ptr[items], ends - begins)
        x = np.take(data.vertices.x, nodes, axis=0).astype(np.float32)  # type: ignore[arg-type]
        arrays = (x, np.concatenate([[0], np.cumsum(degrees)]), indices, ptr)
        return GraphBatch(*map(torch.from_numpy, arrays)), torch.from_numpy(data.y[items])


def _ranges(begins: Array, sizes: Array) -> Array:
    """``begins[i]`` to ``begins[i] + sizes[i]`` one after another, (sum of sizes,) int64."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begins - before, sizes) + np.arange(sizes.sum())


class GraphModel(nn.Module):
    """A GNN over the batch's graph, then the sum or the mean of each graph's vertices, then a linear classifier."""

    def __init__(self, gnn: GNN, hidden_channels: int, num_classes: int, readout: Readout, dropout: float) -> None:
        super().__init__()
        self.gnn = gnn
        self.head = nn.Sequential(nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden_channels, num_classes))
        self.readout = readout

    def forward(self, batch: GraphBatch) -> Tensor:
        """(G, num_classes) logits."""
        block = Block(
            indptr=batch.indptr,
            indices=batch.indices,
            edge_ids=torch.arange(len(batch.indices), device=batch.x.device),
            num_src=len(batch.x),
        )
        x = self.gnn(batch.x, [block] * self.gnn.num_layers, batch.indptr.diff().float())
        sizes = batch.ptr.diff()
        graph_of = torch.repeat_interleave(torch.arange(len(sizes), device=x.device), sizes, output_size=len(x))
        sums = x.new_zeros(len(sizes), x.shape[1]).index_add_(0, graph_of, x)
        logits: Tensor = self.head(sums / sizes[:, None] if self.readout == "mean" else sums)
        return logits


class GraphClassifier(ItemClassifier):
    """A GNN that classifies small graphs; by default GIN with sums (Xu et al. 2019)."""

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        arch: Arch = "gin",
        num_layers: int = 4,
        hidden_channels: int = 64,
        readout: Readout = "sum",
        norm: Norm = "batch",
        dropout: float = 0.5,
        heads: int = 8,
        lr: float = 0.003,
        weight_decay: float = 0.0,
    ) -> None:
        """Build the model. The first two arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex.
            num_classes: number of classes.
            arch: gin, sage, gat or gcn.
            num_layers: number of convolutions.
            hidden_channels: width of all layers.
            readout: sum or mean of a graph's vertices.
            norm: normalisation between layers.
            dropout: share of hidden inputs dropped.
            heads: attention heads of gat.
            lr: AdamW's learning rate.
            weight_decay: AdamW's decay.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        gnn = GNN(arch, in_channels, hidden_channels, hidden_channels, num_layers, dropout=dropout, heads=heads, norm=norm)
        super().__init__(GraphModel(gnn, hidden_channels, num_classes, readout, dropout), num_classes)
        self.save_hyperparameters()
