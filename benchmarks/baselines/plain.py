"""Models in plain PyG: the baselines of ``hoptrain bench accuracy --configs mutag_gin`` and other configurations.

Model, optimiser, batch size, epochs, splits and the choice of the best state are those of the configuration; layers, batching and the loop are PyG's and
torch's. PyG's ``DataLoader`` batches small graphs. For node and edge tasks the batches have as many seeds as in the configuration, but each step computes
on the whole graph, since PyG's ``NeighborLoader`` needs pyg-lib. So the baseline sees all neighbours instead of a sample. The score is the test metric of
the state with the best validation metric (or loss).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain import samplers
from hoptrain.engine import Dataset
from hoptrain.trainers.metrics.labels import Labels, kind_of
from hoptrain.trainers.tasks.edges import EdgeDataModule
from hoptrain.trainers.tasks.items.graphs import GraphDataModule
from hoptrain.trainers.tasks.nodes.data import NodeDataModule

Step = tuple[Tensor, Tensor]
"""The model's outputs for a batch, and the batch's labels."""


class Plain(NamedTuple):
    """A model in PyG with the functions that the training loop needs to train and evaluate it.

    Attributes:
        model: module with all parameters.
        labels: kind of the labels, which determines loss and metric.
        train: returns the batches of an epoch, each as a function that returns its outputs and labels.
        judge: takes a split's name, and returns the outputs and labels of all its examples.
    """

    model: nn.Module
    labels: Labels
    train: Callable[[], Sequence[Callable[[], Step]]]
    judge: Callable[[str], Step]


def plain_score(config: Mapping[str, Any], seed: int) -> float:
    """Return the test metric of a configuration, trained in plain PyG with one seed."""
    torch.manual_seed(seed)
    task, options = config.get("task", "nodes"), config["model"]
    plain = {"graphs": _graphs, "nodes": _nodes, "edges": _edges}[task](config)
    optimizer = {"graphs": torch.optim.AdamW}.get(task, torch.optim.Adam)(
        plain.model.parameters(), lr=options["lr"], weight_decay=options.get("weight_decay", 0.0)
    )
    score, checkpoint, trainer = options.get("metric", "acc"), config.get("checkpoint", {}), config["trainer"]
    monitor = checkpoint.get("monitor", f"val_{score}")
    sign = -1 if checkpoint.get("mode", "min" if plain.labels.make_score(score).higher_is_better is False else "max") == "min" else 1
    best, found = -np.inf, 0.0
    for epoch in range(trainer["max_epochs"]):
        plain.model.train()
        for step in plain.train():
            optimizer.zero_grad()
            outputs, y = step()
            plain.labels.losses(outputs, y).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if (epoch + 1) % trainer.get("check_val_every_n_epoch", 1):
            continue
        value = sign * _evaluate(plain, "val", "loss" if monitor == "val_loss" else score)
        if value > best:
            best, found = value, _evaluate(plain, "test", score)
    return found


def _evaluate(plain: Plain, split: str, score: str) -> float:
    plain.model.eval()
    with torch.no_grad():
        outputs, y = plain.judge(split)
    if score == "loss":
        return float(plain.labels.losses(outputs, y).mean())
    metric = plain.labels.make_score(score)
    metric.update(outputs, y)
    return float(metric.compute())


class _GIN(nn.Module):
    """A GIN from PyG's ``GINConv`` layers with batch norm between them, sum pooling over each graph, and a linear layer."""

    def __init__(self, in_channels: int, num_outputs: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        from torch_geometric.nn import BatchNorm, GINConv

        width, num_layers, self.dropout = options["hidden_channels"], options["num_layers"], options["dropout"]
        widths = [in_channels, *[width] * num_layers]
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs)), train_eps=True) for ins, outs in pairwise(widths)
        )
        self.norms = nn.ModuleList(BatchNorm(width) for _ in range(num_layers - 1))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, batch: Any) -> Tensor:
        """Return the logits of a PyG batch, (G, C)."""
        from torch_geometric.nn import global_add_pool

        x = batch.x
        for i, conv in enumerate(self.convs):
            x = conv(F.dropout(x, self.dropout, self.training and i > 0), batch.edge_index)
            x = self.norms[i](x).relu() if i < len(self.norms) else x
        pooled: Tensor = global_add_pool(x, batch.batch).relu()
        out: Tensor = self.head(F.dropout(pooled, self.dropout, self.training))
        return out


def _graphs(config: Mapping[str, Any]) -> Plain:
    from torch_geometric.data import Batch, Data
    from torch_geometric.loader import DataLoader

    options, module = config["model"], GraphDataModule(**config["data"])
    graphs = []
    for number in range(len(module.data.y)):
        made = module.data.join(np.array([number]))
        edges = np.stack([made["indices"], np.repeat(np.arange(len(made["x"])), np.diff(made["indptr"]))])
        graphs.append(Data(x=torch.from_numpy(made["x"]), edge_index=torch.from_numpy(edges), y=torch.from_numpy(made["y"])))
    of = {split: [graphs[item] for item in items] for split, items in module.data.splits.items()}
    model, loader = _GIN(module.num_features, module.num_classes, options), DataLoader(of["train"], module.batch_size, shuffle=True)

    def step(batch: Any) -> Step:
        return model(batch), batch.y

    labels = Labels(kind_of(options.get("metric", "acc"), module.is_multilabel), module.num_classes)
    return Plain(model, labels, lambda: [partial(step, batch) for batch in loader], lambda split: step(Batch.from_data_list(of[split])))


class _NodeModel(nn.Module):
    """PyG's GraphSAGE or GCN with dropout on the features. For edge tasks an MLP computes the logits of an edge from the outputs of its two ends."""

    def __init__(self, data: Dataset, num_layers: int, num_outputs: int, num_edge_outputs: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        from torch_geometric.nn import GCN, MLP, GraphSAGE

        kind, self.input_dropout = {"sage": GraphSAGE, "gcn": GCN}[options["arch"]], options.get("input_dropout", 0.0)
        self.gnn = kind(data.num_features, options["hidden_channels"], num_layers, num_outputs, dropout=options.get("dropout", 0.5))
        self.pairs = MLP([2 * num_outputs, num_outputs, num_edge_outputs], norm=None) if num_edge_outputs else None

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the outputs of all nodes, (V, C)."""
        out: Tensor = self.gnn(F.dropout(x, self.input_dropout, self.training), edges)
        return out


def opened(kind: Any, config: Mapping[str, Any]) -> Any:
    """Create the data module of a configuration. Baselines use only its data and splits."""
    stated = dict(config["data"])
    return kind(**stated | {"sampler": _sampler(stated["sampler"]), "num_workers": 0})


def _sampler(stated: Any) -> Any:
    if not isinstance(stated, dict):
        return stated
    made = {name: _sampler(value) for name, value in stated.get("init_args", {}).items()}
    return getattr(samplers, stated["class_path"].rpartition(".")[2])(**made)


def whole(data: Dataset, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the features of the whole graph, and its edges: for GraphSAGE as a sparse matrix, since PyG would create a feature row for each edge otherwise."""
    x = torch.from_numpy(np.array(data.x)).float()
    if options.get("normalize_features"):
        x /= x.sum(1, keepdim=True).clamp(min=1e-12)
    return x, edge_index(data) if options["arch"] == "gcn" else adjacency(data)


def adjacency(data: Dataset) -> Tensor:
    """Return the whole graph as a sparse matrix (V, V), with destinations as rows and sources as columns."""
    indptr, indices = (torch.from_numpy(np.array(array)).long() for array in (data.graph.indptr, data.graph.indices))
    shape = data.graph.num_nodes, data.graph.num_nodes
    return torch.sparse_csr_tensor(indptr, indices, torch.ones(data.graph.num_edges), shape, check_invariants=True)


def edge_index(data: Dataset) -> Tensor:
    """Return the edges, (2, E) int64, with sources in the first row and destinations in the second."""
    return torch.from_numpy(np.stack([data.graph.indices, data.graph.destinations()]).astype(np.int64))


def _nodes(config: Mapping[str, Any]) -> Plain:
    options, module = config["model"], opened(NodeDataModule, config)
    data, labels = module.data, Labels(kind_of(options.get("metric", "acc"), module.is_multilabel), module.num_classes)
    model = _NodeModel(data, module.num_hops, module.num_classes, 0, options)
    x, edges = whole(data, options)
    y = labels.prepare(torch.from_numpy(np.array(data.y)))

    def step(nodes: Tensor) -> Step:
        return model(x, edges)[nodes], y[nodes]

    return _dealt_out(model, labels, step, data.splits, module.batch_size)


def _edges(config: Mapping[str, Any]) -> Plain:
    options, module = config["model"], opened(EdgeDataModule, config)
    data, labels = module.data, Labels(kind_of(options.get("metric", "acc"), module.is_multilabel), module.num_classes)
    model = _NodeModel(data, module.num_hops, options["out_channels"], module.num_classes, options)
    x, edges = whole(data, options)
    y, ends = labels.prepare(torch.from_numpy(np.array(module.edge_y))), edge_index(data)  # the file lists edges in the order of their ids

    def step(chosen: Tensor) -> Step:
        vectors, decoder = model(x, edges), model.pairs
        if decoder is None:
            raise TypeError("the model has no decoder for pairs of nodes: a configuration of task edges needs one")
        return decoder(torch.cat([*vectors[ends[:, chosen]]], -1)), y[chosen]

    return _dealt_out(model, labels, step, module.edges, module.batch_size)


def _dealt_out(model: nn.Module, labels: Labels, step: Callable[[Tensor], Step], splits: Mapping[str, Any], batch_size: int) -> Plain:
    """Return the model with its labels and steps. Each training step takes a batch of the shuffled examples in ``splits["train"]``."""
    of = {split: torch.from_numpy(np.array(items)) for split, items in splits.items()}

    def batches() -> list[Callable[[], Step]]:
        order = of["train"][torch.randperm(len(of["train"]))]
        return [partial(step, part) for part in torch.split(order, batch_size)]

    return Plain(model, labels, batches, lambda split: step(of[split]))
