"""A training written like DGL's example (``examples/pytorch/graphsage/node_classification.py``). Its import lines can be replaced by hoptrain's.

Settings are those that DGL's documentation recommends:

* The graph is in CSC format only, features and labels are named for prefetching, and workers are persistent. If there are enough cores,
  ``enable_cpu_affinity`` pins workers and trainer to different cores.
* Ids are int64 or int32. With int32 the fused sampler is off, since its blocks lack edges (DGL 2.1.0).
* GCN and GAT have self-loops, as DGL's documentation of these layers requires. ``allow_zero_in_degree`` is for nodes whose self-loop was not sampled.
* On a GPU without workers, batches are sampled on the GPU, from a graph in its memory or in pinned memory (``use_uva``).
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.benchmarks.baselines import installed
from hoptrain.benchmarks.baselines.dgl import to_dgl
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.trainings.cell import Cell
from hoptrain.benchmarks.trainings.epochs import Epochs, accuracy
from hoptrain.engine import Dataset


def train(cell: Cell, data: Dataset, epochs: Epochs, *, dataloading: str, layers: str, ids: str) -> float:
    """Train, and return the accuracy on the test split."""
    graph = _graph(cell, data, ids)
    samples_there = cell.device == "cuda" and not cell.workers
    is_ours = dataloading.startswith(HOPTRAIN)
    module, options = import_module(dataloading), {"device": cell.device, "batch_size": cell.batch_size}
    if samples_there and not is_ours:
        graph = graph.to(cell.device) if cell.features == "device" else graph
        options["use_uva"] = cell.features == "pinned"
    fused = {} if ids == "int64" else {"fused": False}
    sampler = module.NeighborSampler(list(reversed(cell.fanouts)), prefetch_node_feats=["x"], prefetch_labels=["y"], **fused)
    place = cell.device if samples_there and not is_ours else "cpu"
    train_nodes, test_nodes = (torch.from_numpy(data.split(name)).to(place, graph.idtype) for name in ("train", "test"))
    batches = module.DataLoader(
        graph, train_nodes, sampler, shuffle=True, num_workers=cell.workers, persistent_workers=cell.workers > 0, **options
    )
    model = GNN(cell, import_module(layers), data.num_features, data.num_classes).to(cell.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cell.lr)
    with _affinity(cell, batches, is_ours):
        for _ in epochs:
            for _, _, blocks in batches:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(blocks), blocks[-1].dstdata["y"])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    model.eval()
    with torch.no_grad():
        tests = module.DataLoader(graph, test_nodes, sampler, **options)
        return accuracy((model(blocks), blocks[-1].dstdata["y"]) for _, _, blocks in tests)


def _graph(cell: Cell, data: Dataset, ids: str) -> Any:
    """Return DGL's graph with features ``x`` and labels ``y``, with self-loops for GCN and GAT."""
    graph = to_dgl(data.graph, dtype=ids)
    if cell.arch in ("gcn", "gat"):
        graph = installed.dgl().add_self_loop(graph)
    graph = graph.formats("csc")
    graph.ndata["x"], graph.ndata["y"] = torch.tensor(data.x), torch.tensor(data.y).long()
    return graph


class GNN(nn.Module):
    """The model of DGL's examples: convolutions with an activation and dropout between them."""

    def __init__(self, cell: Cell, library: Any, in_channels: int, out_channels: int) -> None:
        super().__init__()
        widths = cell.widths(in_channels, out_channels)
        self.convs = nn.ModuleList(_conv(cell, library, *ends, is_last=ends is widths[-1]) for ends in widths)
        self.activation = F.elu if cell.arch == "gat" else F.relu
        self.dropout = nn.Dropout(cell.dropout)

    def forward(self, blocks: Any) -> Tensor:
        """Compute the logits of the seeds."""
        x: Tensor = blocks[0].srcdata["x"].float()
        for i, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = conv(block, x).flatten(1)  # GAT returns a matrix for each head
            if i < len(self.convs) - 1:
                x = self.dropout(self.activation(x))
        return x


def _conv(cell: Cell, library: Any, in_channels: int, out_channels: int, *, is_last: bool) -> nn.Module:
    """Return a convolution of DGL or hoptrain, whose classes have the same names and arguments."""
    if cell.arch == "gat":
        heads = 1 if is_last else cell.heads
        made = library.GATConv(in_channels, out_channels // heads, heads, attn_drop=cell.dropout, allow_zero_in_degree=True)
    elif cell.arch == "gin":
        mlp = nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))
        made = library.GINConv(mlp, "sum", learn_eps=True)
    elif cell.arch == "gcn":
        made = library.GraphConv(in_channels, out_channels, allow_zero_in_degree=True)
    else:
        made = library.SAGEConv(in_channels, out_channels, "mean")
    conv: nn.Module = made
    return conv


def _affinity(cell: Cell, batches: Any, is_ours: bool) -> AbstractContextManager[Any]:
    """Pin DGL's workers and trainer to different cores if there are enough. hoptrain's loader needs no such setting."""
    cores = sorted(os.sched_getaffinity(0))
    if is_ours or not cell.workers or cell.workers + cell.threads > len(cores):
        return nullcontext()
    workers, trainer = cores[: cell.workers], cores[cell.workers :]
    pinned: AbstractContextManager[Any] = batches.enable_cpu_affinity(loader_cores=workers, compute_cores=trainer, verbose=False)
    return pinned
