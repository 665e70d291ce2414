"""Heterogeneous models in plain PyG, trained on the whole graph: the baselines of ``hoptrain bench accuracy --configs acm_rgcn``.

The model is that of task hetero, built from the same PyG layers with the same widths, on edge lists of all relations. It is trained with the same Adam for
as many steps as the configuration, each on the whole training split, and validated as often. The score is the test accuracy of the state with the best
validation accuracy.

For links of a relation (``acm_links``) the model is trained with the configuration's batches and epochs, with negatives from the same distribution.
Messages pass along all edges except the batch's own, in both directions. The splits and the negatives for evaluation are hoptrain's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.benchmarks.baselines.plain import opened
from hoptrain.engine import HeteroDataset, load_hetero_dataset
from hoptrain.engine.transforms.link_split import HeldOut
from hoptrain.trainers.metrics.links import PooledScore
from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule


class WholeGraphModel(nn.Module):
    """A model of a heterogeneous graph: takes the features of all node types, and returns ``num_outputs`` values for each node of the seed types."""

    def __init__(
        self, data: HeteroDataset, num_layers: int, options: Mapping[str, Any], seed_types: Sequence[str], num_outputs: int
    ) -> None:
        """Build the layers; ``options`` is the ``model`` section of a configuration."""
        super().__init__()
        from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv
        from torch_geometric.nn.module_dict import ModuleDict

        width, heads, relations = options["hidden_channels"], options.get("heads", 4), list(data.graph.relations)
        self.arch, self.dropout = options["arch"], options.get("dropout", 0.5)
        bare = [name for name in data.graph.num_nodes if name not in data.x]
        self.inputs = ModuleDict({name: nn.Linear(rows.shape[1], width) for name, rows in data.x.items()})
        self.tables = ModuleDict({name: nn.Embedding(data.graph.num_nodes[name], width) for name in bare})
        for table in self.tables.values():
            nn.init.normal_(table.weight, std=width**-0.5)
        make: dict[str, Callable[[], nn.Module]] = {
            "rgcn": lambda: HeteroConv({relation: SAGEConv((width, width), width) for relation in relations}),
            "hgt": lambda: HGTConv(width, width, (list(data.graph.num_nodes), relations), heads),
        }
        self.layers = nn.ModuleList(make[self.arch]() for _ in range(num_layers))
        self.heads = ModuleDict({name: nn.Linear(width, num_outputs) for name in seed_types})
        self.activation: nn.Module = nn.ReLU() if self.arch == "rgcn" else nn.Identity()

    def forward(self, x: Mapping[str, Tensor], edges: Mapping[Any, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of each seed type, (V, C)."""
        hidden = {name: F.relu(linear(x[name])) for name, linear in self.inputs.items()}
        hidden |= {name: table.weight for name, table in self.tables.items()}
        for layer in self.layers:
            hidden = layer({name: F.dropout(rows, self.dropout, self.training) for name, rows in hidden.items()}, edges)
            hidden = {name: self.activation(rows) for name, rows in hidden.items()}
        return {name: head(hidden[name]) for name, head in self.heads.items()}

    def optimizer(self, options: Mapping[str, Any]) -> torch.optim.Optimizer:
        """Return Adam, with weight decay for all parameters except the node embeddings."""
        tables = list(self.tables.parameters())
        others = [parameter for name, parameter in self.named_parameters() if not name.startswith("tables")]
        groups = [{"params": others, "weight_decay": options.get("weight_decay", 0.0)}, {"params": tables}]
        return torch.optim.Adam(groups, lr=options["lr"])


def whole_graph_accuracy(config: Mapping[str, Any], seed: int) -> float:
    """Return the test accuracy of a configuration of task hetero, trained in plain PyG with one seed."""
    torch.manual_seed(seed)
    options, stated = config["model"], config["data"]
    data = load_hetero_dataset(stated["dataset"])
    train, val, test = (torch.from_numpy(np.array(data.split(f"{split}_{stated['splits']}"))) for split in ("train", "val", "test"))
    (x, edges), y = _inputs(data), torch.from_numpy(np.array(data.y))
    kind, num_layers = data.seed_type, len(stated["sampler"]["init_args"]["fanouts"])
    model = WholeGraphModel(data, num_layers, options, [kind], data.num_classes)
    optimizer = model.optimizer(options)
    found: list[tuple[float, float]] = []
    for epoch in range(config["trainer"]["max_epochs"]):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[kind][train], y[train]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (epoch + 1) % config["trainer"]["check_val_every_n_epoch"] == 0:
            model.eval()
            with torch.no_grad():
                right = (model(x, edges)[kind].argmax(1) == y).double()
            found.append((float(right[val].mean()), float(right[test].mean())))
    return max(found, key=lambda each: each[0])[1]


def whole_graph_links_auc(config: Mapping[str, Any], seed: int) -> float:
    """Return the test ROC AUC of a configuration of task hetero_links (one relation, inner product), trained in plain PyG with one seed."""
    torch.manual_seed(seed)
    module, options = opened(HeteroLinkDataModule, config), config["model"]
    data, sampler = module.data, module.sampler
    (kind, name, other), reverse = sampler.relations[0], sampler.reverses_in(data.graph)[0]
    model = WholeGraphModel(data, module.num_hops, options, [kind, other], options.get("out_channels", 64))
    optimizer, (x, edges) = model.optimizer(options), _inputs(data)
    links, number = edges[kind, name, other], data.graph.num_nodes[other]
    keys = links[0] * number + links[1]
    turned = edges[reverse][1] * number + edges[reverse][0]
    found: list[tuple[float, float]] = []
    for epoch in range(config["trainer"]["max_epochs"]):
        model.train()
        for part in torch.split(torch.randperm(len(keys)), module.batch_size):
            left = {
                (kind, name, other): links[:, ~torch.isin(keys, keys[part])],
                reverse: edges[reverse][:, ~torch.isin(turned, keys[part])],
            }
            vectors, (source, destination) = model(x, {**edges, **left}), links[:, part]
            scores = _products(vectors[kind], vectors[other], source, torch.stack([destination, torch.randint(number, (len(part),))]))
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(scores, torch.tensor([[1.0], [0.0]]).expand_as(scores)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if (epoch + 1) % config["trainer"].get("check_val_every_n_epoch", 1) == 0:
            model.eval()
            with torch.no_grad():
                vectors = model(x, edges)
            found.append(tuple(_auc(vectors[kind], vectors[other], module.held_out[split]) for split in ("val", "test")))  # type: ignore[arg-type]
    return max(found, key=lambda each: each[0])[1]


def _products(sources: Tensor, destinations: Tensor, source: Tensor, destination: Tensor) -> Tensor:
    return (sources[source] * destinations[destination]).sum(-1)


def _auc(sources: Tensor, destinations: Tensor, held: HeldOut) -> float:
    metric = PooledScore("auc")
    for pairs, label in ((held.links, 1), (held.others, 0)):
        source, destination = torch.from_numpy(np.asarray(pairs))
        metric.update(_products(sources, destinations, source, destination - len(sources)), torch.full_like(source, label))
    return float(metric.compute())


def _inputs(data: HeteroDataset) -> tuple[dict[str, Tensor], dict[Any, Tensor]]:
    """Return the features by node type and the edges by relation."""
    x = {name: torch.from_numpy(np.array(rows)) for name, rows in data.x.items()}
    return x, {relation: edge_index_of(columns) for relation, columns in data.graph.relations.items()}


def edge_index_of(columns: Any) -> Tensor:
    """Return the edges, (2, E) int64, with sources in the first row and destinations in the second."""
    destinations = np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))
    return torch.from_numpy(np.stack([columns.indices, destinations]).astype(np.int64))
