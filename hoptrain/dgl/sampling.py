"""Functions of ``dgl.sampling`` over hoptrain: ``from hoptrain.dgl.sampling import random_walk``. Names, arguments and results are DGL's."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.graphs import Converted, as_ids, feature_of_edges, homogeneous, is_hetero, on_host, relation_converted
from hoptrain.dgl.hetero import by_type, fanouts_by_relation
from hoptrain.dgl.outputs import dgl
from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import join_limited
from hoptrain.samplers import Workspace
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables, build_alias_tables
from hoptrain.samplers.checks import check_nodes
from hoptrain.samplers.programs.edge_walks import Steps, edge_walks


def random_walk(
    g: Any,
    nodes: Any,
    *,
    metapath: Any = None,
    length: int | None = None,
    prob: str | None = None,
    restart_prob: Any = None,
    return_eids: bool = False,
) -> tuple[Tensor, ...]:
    """See ``dgl.sampling.random_walk``: walks along the edges, -1 after an end.

    Draws follow from one number of torch's generator. A walk also ends where all edges have the probability 0, of which DGL says nothing.

    Raises:
        InputError: nodes or edge types that do not exist, neither a length nor a metapath, a probability that is none.
    """
    if (metapath is None) == (length is None):
        raise InputError(f"length is {length} and metapath {metapath}: one of them says how many steps a walk has; give one")
    path = [(homogeneous(g).canonical_etypes[0], int(length))] if length is not None else [(each, 1) for each in _canonical(g, metapath)]
    having = {relation for relation, _ in path if prob in g.edges[relation].data} if prob is not None and is_hetero(g) else set()
    made, steps = [], []
    for relation, number in path:
        one = relation_converted(g, relation, "out", None if having and relation not in having else prob)
        made += [one] * number
        steps.append(Steps(one.graph, number, _tables(one) if one.graph.weights is not None else NO_TABLES))
    ends = 0.0 if restart_prob is None else torch.as_tensor(restart_prob, dtype=torch.float64).cpu().numpy()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    start = as_ids(nodes)
    found = edge_walks(steps, check_nodes(start, steps[0].columns.num_nodes), ends, seed=seed, workspace=Workspace(os.cpu_count() or 1))
    kinds = [path[0][0][0], *(relation[2] for relation, number in path for _ in range(number))]
    traces, types = torch.from_numpy(found.vertices).to(g.idtype), torch.tensor([g.get_ntype_id(kind) for kind in kinds], dtype=g.idtype)
    if not return_eids:
        return traces, types
    ids = np.stack([one.graph.ids_of(found.places[:, step]).astype(np.int64) for step, one in enumerate(made)], 1)
    return traces, torch.from_numpy(ids).to(g.idtype), types


def _canonical(g: Any, metapath: Any) -> list[tuple[str, str, str]]:
    """The edge types of a path, each of which begins where the one before ends.

    Raises:
        InputError: they do not, or one of them does not exist.
    """
    known = {name: relation for relation in g.canonical_etypes for name in (relation, relation[1])}
    unknown = [name for name in metapath if name not in known]
    if unknown or not metapath:
        raise InputError(
            f"metapath is {list(metapath)}: its steps are edge types of the graph, {join_limited(g.canonical_etypes)}; correct it"
        )
    path = [g.to_canonical_etype(name) for name in metapath]
    for before, after in pairwise(path):
        if before[2] != after[0]:
            raise InputError(
                f"metapath is {list(metapath)}: {after[1]!r} begins at {after[0]!r}, where no walk is that took {before[1]!r}; correct it"
            )
    return path


def pack_traces(traces: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See ``dgl.sampling.pack_traces``: the nodes of all walks (N,), their types, the length (W,) of each walk, and where it begins (W,)."""
    is_there = traces >= 0
    lengths = is_there.sum(1)
    return traces[is_there], types.expand_as(traces)[is_there], lengths, lengths.cumsum(0) - lengths


def select_topk(
    g: Any,
    k: int,
    weight: str,
    nodes: Any = None,
    edge_dir: str = "in",
    ascending: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    output_device: Any = None,
) -> Any:
    """See ``dgl.sampling.select_topk``. Of edges with the same weight those with the smaller ids are taken.

    Raises:
        InputError: nodes, edge types or a feature that do not exist, k below -1.
    """
    numbers = fanouts_by_relation(on_host(g), [k], "values of k")
    chosen = None if nodes is None else by_type(g, nodes, g.ntypes, "nodes")
    kept = {}
    for relation, (number,) in numbers.items():
        if number < -1:
            raise InputError(f"k is {number}: a node keeps k edges, 0 or more, or -1 for all; correct it")
        graph = relation_converted(g, relation, edge_dir).graph
        own = np.arange(graph.num_nodes) if chosen is None else chosen.get(relation[2 if edge_dir == "in" else 0], np.zeros(0, np.int64))
        if len(own):
            check_nodes(own, graph.num_nodes)
        ids = _heaviest(graph, feature_of_edges(g, relation, weight), own, number, ascending)
        kept[relation] = torch.from_numpy(ids).to(g.idtype)
    made = dgl.edge_subgraph(g, kept, relabel_nodes=False, store_ids=True)
    for kind in () if copy_ndata else g.ntypes:
        made.nodes[kind].data.clear()
    for relation in () if copy_edata else g.canonical_etypes:
        made.edges[relation].data.clear()
    return made if output_device is None else made.to(output_device)


def _heaviest(graph: Any, values: Tensor, chosen: Array, k: int, ascending: bool) -> Array:
    """(N,) int64 ids of up to k edges, all for -1, of each of the nodes ``chosen``, by ``values`` (E,) of all edges by id."""
    begins, degrees = graph.indptr[chosen].astype(np.int64), (graph.indptr[chosen + 1] - graph.indptr[chosen]).astype(np.int64)
    owners = np.repeat(np.arange(len(chosen)), degrees)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    ids = np.asarray(graph.ids_of(rank + np.repeat(begins, degrees)), np.int64)
    keys = values.reshape(-1)[torch.from_numpy(ids)].numpy()
    descending = _places_of(keys) if ascending else -_places_of(keys)
    order = np.lexsort((ids, descending, owners))
    kept: Array = ids[order[rank < (len(owners) if k < 0 else k)]]
    return kept


def _places_of(keys: Array) -> Array:
    """(N,) int64, the place of each among the distinct ones: of integers, too, the negative stands for the other order."""
    return np.unique(keys, return_inverse=True)[1]


def _tables(made: Converted) -> AliasTables:
    """Of the weights, made once."""
    return made.kept("alias tables", lambda: build_alias_tables(made.graph))
