"""Models of typed graphs in plain PyG, trained on the whole graph: what ``hoptrain bench accuracy --configs acm_rgcn`` is measured beside.

The model is the one that task hetero describes, of the same layers of PyG's with the same widths, over edge lists of all relations. It takes as many
steps of the same Adam as the configuration's run, each on the whole training split, and is validated as often; the score is the test accuracy of
the state with the best validation accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import HeteroDataset, load_hetero_dataset


class WholeGraphModel(nn.Module):
    """Vectors of all types in, scores of all seeds' type out."""

    def __init__(self, data: HeteroDataset, num_layers: int, options: Mapping[str, Any]) -> None:
        """Build the layers of ``options``, those of a configuration's ``model``."""
        super().__init__()
        from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv
        from torch_geometric.nn.module_dict import ModuleDict

        width, heads, relations = options["hidden_channels"], options.get("heads", 4), list(data.graph.relations)
        self.arch, self.dropout, self.seed_type = options["arch"], options.get("dropout", 0.5), data.seed_type
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
        self.head = nn.Linear(width, data.num_classes)
        self.activation: nn.Module = nn.ReLU() if self.arch == "rgcn" else nn.Identity()

    def forward(self, x: Mapping[str, Tensor], edges: Mapping[Any, Tensor]) -> Tensor:
        """(V, C) of the seeds' type."""
        hidden = {name: F.relu(linear(x[name])) for name, linear in self.inputs.items()}
        hidden |= {name: table.weight for name, table in self.tables.items()}
        for layer in self.layers:
            hidden = layer({name: F.dropout(rows, self.dropout, self.training) for name, rows in hidden.items()}, edges)
            hidden = {name: self.activation(rows) for name, rows in hidden.items()}
        scores: Tensor = self.head(hidden[self.seed_type])
        return scores


def whole_graph_accuracy(config: Mapping[str, Any], seed: int) -> float:
    """Test accuracy of a configuration of task hetero with one seed, trained by plain PyG."""
    torch.manual_seed(seed)
    options, stated = config["model"], config["data"]
    data = load_hetero_dataset(stated["dataset"])
    train, val, test = (torch.from_numpy(np.array(data.split(f"{split}_{stated['splits']}"))) for split in ("train", "val", "test"))
    x, y = {name: torch.from_numpy(np.array(rows)) for name, rows in data.x.items()}, torch.from_numpy(np.array(data.y))
    edges = {relation: edge_index_of(columns) for relation, columns in data.graph.relations.items()}
    model = WholeGraphModel(data, len(stated["sampler"]["init_args"]["fanouts"]), options)
    tables = list(model.tables.parameters())
    others = [parameter for name, parameter in model.named_parameters() if not name.startswith("tables")]
    groups = [{"params": others, "weight_decay": options.get("weight_decay", 0.0)}, {"params": tables}]
    optimizer = torch.optim.Adam(groups, lr=options["lr"])
    found: list[tuple[float, float]] = []
    for epoch in range(config["trainer"]["max_epochs"]):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], y[train]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (epoch + 1) % config["trainer"]["check_val_every_n_epoch"] == 0:
            model.eval()
            with torch.no_grad():
                right = (model(x, edges).argmax(1) == y).double()
            found.append((float(right[val].mean()), float(right[test].mean())))
    return max(found, key=lambda each: each[0])[1]


def edge_index_of(columns: Any) -> Tensor:
    """(2, E) int64, sources above destinations."""
    destinations = np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))
    return torch.from_numpy(np.stack([columns.indices, destinations]).astype(np.int64))
