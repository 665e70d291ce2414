"""Classification and regression of small graphs. A batch joins its graphs to one disconnected graph, as in PyG; node vectors are pooled per graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.small_graphs import SmallGraphs
from hoptrain.engine.errors import check_choice
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.samplers import Block
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.edge_layers import OF_EDGES
from hoptrain.trainers.models.features import Standardize
from hoptrain.trainers.models.gnn import Norm
from hoptrain.trainers.models.layers import Arch, Dropout
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.items.feed import ItemDataModule, Joined
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import open_data

Readout = Literal["sum", "mean"]


class GraphBatch(NamedTuple):
    """A batch of G graphs with V nodes and E edges in total.

    Attributes:
        x: node features (V, F) float32.
        indptr: CSC offsets (V + 1,) int64 of the in-neighbours.
        indices: sources (E,) int64, node numbers within the batch.
        ptr: offsets (G + 1,) int64 of each graph's nodes.
        edge_attr: edge features (E, D) float32; None without them.
    """

    x: Tensor
    indptr: Tensor
    indices: Tensor
    ptr: Tensor
    edge_attr: Tensor | None = None


class GraphDataModule(ItemDataModule):
    """A data module that loads many small graphs and joins those of a batch, optionally in worker processes.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset, SmallGraphs, GraphDataModule
        >>> nodes = Dataset(edge_index=[[0, 1, 2, 3], [1, 0, 3, 4]], x=np.ones((5, 1)))  # of both graphs
        >>> splits = {"train": np.array([0, 1]), "val": np.array([], int), "test": np.array([], int)}
        >>> graphs = SmallGraphs(nodes=nodes, ptr=np.array([0, 2, 5]), y=np.array([0, 1]), splits=splits)
        >>> batch = next(iter(GraphDataModule(graphs, batch_size=2, seed=1).train_dataloader()))
        >>> batch.x.ptr, batch.y  # where each graph's nodes begin, and its label
        (tensor([0, 2, 5]), tensor([0, 1]))
    """

    data: SmallGraphs

    def __init__(
        self,
        dataset: str | SmallGraphs,
        root: str | None = None,
        fold: int = 0,
        batch_size: int = 32,
        seed: int | None = None,
        num_workers: int = 0,
        worker_options: WorkerOptions = DEFAULTS,
        edge_features: bool = True,
        categorical: bool = False,
    ) -> None:
        """Open the graphs.

        Args:
            dataset: name of a .npz file or a folder, such as tu_mutag; one of OGB's ogbg-mol data sets; or in Python ``SmallGraphs``.
            root: folder with the file; by default $HOPTRAIN_DATA.
            fold: number of the test fold, 0 to 9, for data with folds for cross-validation. The next fold is for validation.
            batch_size: number of graphs per rank and step.
            seed: seed of the order of examples; by default that of seed_everything.
            num_workers: worker processes per rank that assemble batches; 0 assembles them in the training process.
            worker_options: options of the queue from the worker processes.
            edge_features: use the graphs' edge features, if any; only some convolutions read them.
            categorical: features are category numbers, like OGB's features of atoms and bonds; the model learns an embedding for each category.
        """
        data = open_data(dataset, load_small_graphs, root=root, fold=fold)
        if not edge_features:
            data = replace(data, nodes=replace(data.nodes, edge_attr=None, validate=False), validate=False)
        super().__init__(data, batch_size, seed, num_workers, worker_options)
        self.joined: Joined | None = data.join, graph_tensors
        self._categorical = categorical

    @property
    def num_features(self) -> int:
        """Number of features of a node, F."""
        return self.data.nodes.num_features

    @property
    def num_edge_features(self) -> int:
        """Number of features of an edge, D; 0 without edge features."""
        return self.data.nodes.num_edge_features

    @property
    def is_multilabel(self) -> bool:
        """True if a graph may have several labels."""
        return self.data.y.ndim == 2 and self.data.y.dtype.kind != "f"

    @property
    def node_categories(self) -> tuple[int, ...]:
        """Number of categories in each of the F feature columns of nodes if ``categorical`` is set; otherwise empty."""
        return self._categories("x")

    @property
    def edge_categories(self) -> tuple[int, ...]:
        """Number of categories in each of the D feature columns of edges if ``categorical`` is set; otherwise empty."""
        return self._categories("edge_attr")

    def _categories(self, name: str) -> tuple[int, ...]:
        rows: Array | None = getattr(self.data.nodes, name)
        if not self._categorical or rows is None:
            return ()
        if rows.dtype.kind not in "iu" or rows.min() < 0:
            raise InputError(
                f"categorical with {name} of {rows.dtype}: categories must be integers of at least 0; convert them or leave categorical out"
            )
        return tuple(int(column) + 1 for column in rows.max(0))

    def collate(self, items: Array, address: Address | None) -> tuple[GraphBatch, Tensor]:
        """Return the graphs of a batch, joined to one graph, and their labels."""
        return graph_tensors(self.data.join(items))


def graph_tensors(arrays: dict[str, Array]) -> tuple[GraphBatch, Tensor]:
    """Convert the arrays of ``SmallGraphs.join`` to tensors."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    y = tensors.pop("y")
    return GraphBatch(**tensors), y


class Categories(nn.Module):
    """A module that maps category indices (N, K) to the sum (N, width) of an embedding per column, like OGB's AtomEncoder."""

    def __init__(self, sizes: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(sum(sizes), width)
        self.register_buffer("begins", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)
        self.begins: Tensor
        nn.init.xavier_uniform_(self.vectors.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the sums (N, width) of the embeddings of category indices (N, K)."""
        out: Tensor = self.vectors(rows.long() + self.begins).sum(1)
        return out


class GraphModel(nn.Module):
    """A module that applies a GNN to a batch's graph, pools each graph's nodes by sum or mean, and applies a linear map."""

    def __init__(
        self,
        gnn: GNN,
        hidden_channels: int,
        num_classes: int,
        readout: Readout,
        dropout: float,
        node_categories: tuple[int, ...] = (),
        edge_categories: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.of_vertices = Categories(node_categories, hidden_channels) if node_categories else nn.Identity()
        self.of_edges = Categories(edge_categories, hidden_channels) if edge_categories else nn.Identity()
        self.gnn = gnn
        self.head = nn.Sequential(nn.ReLU(), Dropout(dropout), nn.Linear(hidden_channels, num_classes))
        self.readout = readout

    def forward(self, batch: GraphBatch) -> Tensor:
        """Compute logits (G, num_classes)."""
        block = Block(
            indptr=batch.indptr,
            indices=batch.indices,
            edge_ids=torch.arange(len(batch.indices), device=batch.x.device),
            num_src=len(batch.x),
            edge_attr=None if batch.edge_attr is None else self.of_edges(batch.edge_attr),
        )
        x = self.gnn(self.of_vertices(batch.x), [block] * self.gnn.num_layers, batch.indptr.diff().float())
        sizes = batch.ptr.diff()
        graph_of = torch.repeat_interleave(torch.arange(len(sizes), device=x.device), sizes, output_size=len(x))
        sums = x.new_zeros(len(sizes), x.shape[1]).index_add_(0, graph_of, x)
        logits: Tensor = self.head(sums / sizes[:, None] if self.readout == "mean" else sums)
        return logits


class GraphClassifier(ItemClassifier):
    """A LightningModule that classifies small graphs, or predicts their targets; by default with GIN layers and sum pooling (Xu et al. 2019).

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset, GraphClassifier, SmallGraphs, GraphDataModule
        >>> nodes = Dataset(edge_index=[[0, 1, 2, 3], [1, 0, 3, 4]], x=np.ones((5, 1)))  # of both graphs
        >>> graphs = SmallGraphs(nodes=nodes, ptr=np.array([0, 2, 5]), y=np.array([0, 1]), splits={"train": np.array([0, 1])})
        >>> data = GraphDataModule(graphs, batch_size=2, seed=1)
        >>> model = GraphClassifier(data.num_features, data.num_classes, num_layers=2)
        >>> model(next(iter(data.train_dataloader()))).shape  # logits of each graph's classes
        torch.Size([2, 2])
    """

    data_class = GraphDataModule
    learns_from = "graphs"
    example = "graph"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        multilabel: bool = False,
        edge_channels: int = 0,
        node_categories: tuple[int, ...] = (),
        edge_categories: tuple[int, ...] = (),
        arch: Arch = "gin",
        num_layers: int = 4,
        hidden_channels: int = 64,
        readout: Readout = "sum",
        norm: Norm = "batch",
        dropout: float = 0.5,
        heads: int = 8,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        standardize_features: bool = False,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first six arguments come from the data.

        Args:
            in_channels: number of features of a node.
            num_classes: number of classes, labels or targets.
            multilabel: whether a graph may have several labels.
            edge_channels: number of features of an edge.
            node_categories: number of categories of each node feature, if features are category numbers.
            edge_categories: number of categories of each edge feature, if features are category numbers.
            arch: layer type: gin, sage, gat or gcn; or gine, gatv2, transformer or nnconv, which read edge features.
            num_layers: number of convolutions.
            hidden_channels: width of all layers.
            readout: how a graph's node vectors are pooled: sum or mean.
            norm: normalisation between layers: none, batch or layer.
            dropout: dropout probability of the inputs of hidden layers.
            heads: number of attention heads of gat, gatv2 and transformer.
            lr: AdamW's learning rate.
            weight_decay: AdamW's weight decay.
            standardize_features: subtract from each feature its mean over the nodes of training graphs, and divide by its standard deviation over them.
            options: further options of ``ItemClassifier``: metric, class_weight, loss, optimizer and lr_scheduler.

        Raises:
            InputError: an option is out of range or unknown, or edge features are given with a convolution that ignores them.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        check_choice("readout", readout, get_args(Readout))
        if edge_channels and arch not in OF_EDGES:
            raise InputError(
                f"edge_channels is {edge_channels} with arch {arch}: it ignores edge features; use {', '.join(OF_EDGES[:-1])} or "
                f"{OF_EDGES[-1]}, or set data.edge_features: false"
            )
        if standardize_features and node_categories:
            raise InputError("standardize_features with categorical features: categories have no mean; leave one of them out")
        widths = hidden_channels if node_categories else in_channels, hidden_channels if edge_categories else edge_channels
        layers: dict[str, Any] = {"dropout": dropout, "heads": heads, "norm": norm, "edge_channels": widths[1]}
        layers["standardize_features"] = standardize_features
        gnn = GNN(arch, widths[0], hidden_channels, hidden_channels, num_layers, **layers)
        model = GraphModel(gnn, hidden_channels, num_classes, readout, dropout, tuple(node_categories), tuple(edge_categories))
        super().__init__(model, num_classes, multilabel, **options)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        """Check that the model matches the data.

        Raises:
            InputError: the model was built for other data.
        """
        module = self._datamodule
        for name, own in (("in_channels", module.num_features), ("edge_channels", module.num_edge_features)):
            if self.hparams[name] != own:
                raise InputError(
                    f"the model's {name} is {self.hparams[name]}, {module.data.name} has {own}: use the data that the model was built for"
                )
        super().setup(stage)
        data = module.data
        for standardize in self.modules() if stage == "fit" else ():
            if isinstance(standardize, Standardize):
                is_trained = np.zeros(len(data.y), bool)
                is_trained[data.splits["train"]] = True
                standardize.fit(data.nodes.x, np.flatnonzero(np.repeat(is_trained, np.diff(data.ptr))))
