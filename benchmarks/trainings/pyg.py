"""A training written like PyG's examples (``hierarchical_sampling.py``, ``ogbn_train.py``, ``reddit.py``). Its import lines can be replaced by hoptrain's.

Settings are those that PyG's documentation recommends:

* It samples with pyg-lib if that is installed, otherwise with torch-sparse. Edges are sorted by destination (``is_sorted``).
* ``trim_to_layer`` removes from each layer the nodes and edges that no later layer reads. The system "PyG" does not use it, like most scripts.
  It needs pyg-lib, since torch-sparse does not return the sizes of the hops.
* Workers are persistent. If there are enough cores, ``enable_cpu_affinity`` pins them to cores that the trainer does not use.
* On a GPU, features and labels are in its memory (``data.to(device, "x", "y")``), or each batch is pinned and copied.

hoptrain's loader takes the same arguments. On a GPU without workers it samples on the GPU, which PyG cannot do. hoptrain's layers trim by themselves.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.benchmarks.baselines.pyg import to_pyg
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.trainings.cell import Cell
from hoptrain.benchmarks.trainings.epochs import Epochs, accuracy
from hoptrain.engine import Dataset


def train(cell: Cell, data: Dataset, epochs: Epochs, *, loader: str, layers: str, trim: bool) -> float:
    """Train, and return the accuracy on the test split."""
    graph = to_pyg(data.graph, x=torch.tensor(data.x), y=torch.tensor(data.y).long())
    if cell.features == "device":
        graph = graph.to(cell.device, "x", "y")
    options = {"batch_size": cell.batch_size, "is_sorted": True, **_device_options(cell, loader)}
    open_loader = partial(import_module(loader).NeighborLoader, graph, list(cell.fanouts), **options)
    train_nodes, test_nodes = (torch.from_numpy(data.split(name)) for name in ("train", "test"))
    batches = open_loader(input_nodes=train_nodes, shuffle=True, num_workers=cell.workers, persistent_workers=cell.workers > 0)
    model = GNN(cell, import_module(layers), data.num_features, data.num_classes, trim).to(cell.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cell.lr)
    with _affinity(cell, batches, loader):
        for _ in epochs:
            for batch in batches:
                batch = batch.to(cell.device, non_blocking=True)
                optimizer.zero_grad()
                out = model(batch)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    model.eval()
    with torch.no_grad():
        tests = (batch.to(cell.device) for batch in open_loader(input_nodes=test_nodes))
        return accuracy((model(batch)[: batch.batch_size], batch.y[: batch.batch_size]) for batch in tests)


class GNN(nn.Module):
    """The model of PyG's examples: convolutions with an activation and dropout between them."""

    def __init__(self, cell: Cell, library: Any, in_channels: int, out_channels: int, trim: bool) -> None:
        super().__init__()
        widths = cell.widths(in_channels, out_channels)
        self.convs = nn.ModuleList(_conv(cell, library, *ends, is_last=ends is widths[-1]) for ends in widths)
        self.activation = F.elu if cell.arch == "gat" else F.relu
        self.dropout = nn.Dropout(cell.dropout)
        self.trim = trim

    def forward(self, batch: Any) -> Tensor:
        """Compute the logits of the nodes that the last layer has, with the seeds first."""
        from torch_geometric.utils import trim_to_layer

        x: Tensor = batch.x.float()
        edge_index = batch.edge_index
        for i, conv in enumerate(self.convs):
            if self.trim:
                x, edge_index, _ = trim_to_layer(i, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = self.dropout(self.activation(x))
        return x


def _conv(cell: Cell, library: Any, in_channels: int, out_channels: int, *, is_last: bool) -> nn.Module:
    """Return a convolution of PyG or hoptrain, whose classes have the same names and arguments."""
    if cell.arch == "gat":
        heads = 1 if is_last else cell.heads
        made = library.GATConv(in_channels, out_channels // heads, heads=heads, concat=not is_last, dropout=cell.dropout)
    elif cell.arch == "gin":
        mlp = nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))
        made = library.GINConv(mlp, train_eps=True)
    else:
        made = {"sage": library.SAGEConv, "gcn": library.GCNConv}[cell.arch](in_channels, out_channels)
    conv: nn.Module = made
    return conv


def _device_options(cell: Cell, loader: str) -> dict[str, Any]:
    """Return the loader's arguments for a GPU. hoptrain's loader without workers samples on the GPU."""
    if cell.device == "cpu":
        return {}
    if loader.startswith(HOPTRAIN) and not cell.workers:
        return {"device": cell.device, "feature_placement": cell.features}
    return {"pin_memory": cell.features == "pinned"}


def _affinity(cell: Cell, batches: Any, loader: str) -> AbstractContextManager[Any]:
    """Pin PyG's workers to the cores that the trainer does not use. hoptrain's loader needs no such setting."""
    cores = sorted(os.sched_getaffinity(0))
    if loader.startswith(HOPTRAIN) or not cell.workers or cell.workers + cell.threads > len(cores):
        return nullcontext()
    pinned: AbstractContextManager[Any] = batches.enable_cpu_affinity(loader_cores=cores[: cell.workers])
    return pinned
