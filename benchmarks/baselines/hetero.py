"""Training scripts with the heterogeneous loaders of PyG and DGL. ``hoptrain bench compat`` runs each also with one import line changed to hoptrain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from hoptrain.benchmarks.baselines import installed
from hoptrain.benchmarks.baselines.lines import Pair
from hoptrain.benchmarks.baselines.loaders import persistent
from hoptrain.benchmarks.baselines.pyg import check_samples
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.engine import HeteroDataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation

_WIDTH = 32


def open_dgl(data: HeteroDataset, fanouts: Sequence[int], seeds: Array, batch_size: int) -> Pair:
    """Return a script for DGL's ``DataLoader``, with a ``SAGEConv`` for each relation.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl, nn, kind = installed.dgl(), import_module("dgl.nn.pytorch"), data.seed_type
    # HeteroGraphConv uses edge type names as module names: they must be unique, and a module cannot be called "to".
    edges = {(source, f"{source}-{name}-{end}", end): ends for (source, name, end), ends in _edges(data).items()}
    graph = dgl.heterograph(edges, data.graph.num_nodes)
    x = _features(data)
    for name, rows in x.items():
        graph.nodes[name].data["x"] = rows
    graph.nodes[kind].data["y"] = torch.from_numpy(np.array(data.y))
    graph.create_formats_()
    names = {name: ["x"] for name in x}

    def script(module: str, workers: int) -> Any:
        loading = import_module(module)
        sampler = loading.NeighborSampler(list(reversed(fanouts)), prefetch_node_feats=names, prefetch_labels={kind: ["y"]})
        return loading.DataLoader(graph, {kind: torch.from_numpy(seeds)}, sampler, **persistent(batch_size, workers))

    def layer(ins: int, outs: int) -> Any:
        return nn.HeteroGraphConv({name: nn.SAGEConv(ins, outs, "mean") for _, name, _ in edges})

    def model() -> torch.nn.Module:
        widths = [*[_WIDTH] * (len(fanouts) - 1), data.num_classes]
        ins = [next(iter(x.values())).shape[1], *widths]
        return torch.nn.ModuleList(layer(*ends) for ends in zip(ins, widths, strict=False))

    def loss(model: Any, batch: Any) -> torch.Tensor:
        blocks = batch[2]
        h = {name: blocks[0].srcnodes[name].data["x"] for name in names}
        for convolution, block in zip(model, blocks, strict=True):
            h = {name: own.relu() if convolution is not model[-1] else own for name, own in convolution(block, h).items()}
        return cross_entropy(h[kind], blocks[-1].dstnodes[kind].data["y"])

    return Pair(
        loaders={"DGL": partial(script, "dgl.dataloading"), HOPTRAIN: partial(script, "hoptrain.dgl")},
        features=lambda batch: [batch[2][0].srcnodes[name].data["x"].numpy() for name in names],
        model=model,
        loss=loss,
    )


def open_pyg(data: HeteroDataset, fanouts: Sequence[int], seeds: Array, batch_size: int) -> Pair:
    """Return a script for PyG's ``NeighborLoader``, with GraphSAGE converted by ``to_hetero``.

    Raises:
        InputError: PyG is not installed, or neither pyg-lib nor torch-sparse is.
    """
    check_samples()
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import GraphSAGE, to_hetero

    x = _features(data)
    owned, kind = HeteroData({name: {"x": rows} for name, rows in x.items()}), data.seed_type
    owned[kind].y = torch.from_numpy(np.array(data.y))
    for relation, ends in _edges(data).items():
        owned[relation].edge_index = torch.stack(ends)

    def script(module: str, workers: int) -> Any:
        loader = import_module(module).NeighborLoader
        return loader(owned, list(fanouts), input_nodes=(kind, torch.from_numpy(seeds)), is_sorted=True, **persistent(batch_size, workers))

    def model() -> torch.nn.Module:
        made: torch.nn.Module = to_hetero(GraphSAGE((-1, -1), _WIDTH, len(fanouts), data.num_classes), owned.metadata())
        with torch.no_grad():
            made(owned.x_dict, owned.edge_index_dict)  # initialises the lazy layers (in_channels = -1)
        return made

    def loss(model: Any, batch: Any) -> torch.Tensor:
        size = batch[kind].batch_size
        return cross_entropy(model(batch.x_dict, batch.edge_index_dict)[kind][:size], batch[kind].y[:size])

    return Pair(
        loaders={"PyG": partial(script, "torch_geometric.loader"), HOPTRAIN: partial(script, "hoptrain.pyg")},
        features=lambda batch: [batch[name].x.numpy() for name in x],
        model=model,
        loss=loss,
    )


def _features(data: HeteroDataset) -> dict[str, torch.Tensor]:
    """Return a copy of each type's features. Types without features get zeros, as wide as the features of the other types."""
    width = next(iter(data.x.values())).shape[1]
    return {
        name: torch.from_numpy(np.array(data.x[name])) if name in data.x else torch.zeros(number, width)
        for name, number in data.graph.num_nodes.items()
    }


def _edges(data: HeteroDataset) -> dict[Relation, tuple[torch.Tensor, torch.Tensor]]:
    """Return the sources and destinations of each relation, sorted by destination."""
    edges = {}
    for relation, columns in data.graph.relations.items():
        destinations = np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))
        edges[relation] = torch.from_numpy(columns.indices.astype(np.int64)), torch.from_numpy(destinations)
    return edges
