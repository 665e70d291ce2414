"""Drop-in replacements for functions of ``dgl.sampling``: ``random_walk``, ``pack_traces`` and ``select_topk``.

Every other name, such as ``PinSAGESampler``, is DGL's own.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.graphs import ConvertedGraph, as_ids, convert_relation, get_edge_feature, is_hetero, on_host, require_homogeneous
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
    """Return random walks along the edges; a drop-in replacement for ``dgl.sampling.random_walk``. Entries after the end of a walk are -1.

    The random seed comes from torch's generator. A walk also ends where all edges have the probability 0; DGL does not document this case.

    Raises:
        InputError: a node or an edge type does not exist, not exactly one of ``length`` and ``metapath`` is given, or ``prob`` or
            ``restart_prob`` is invalid.
    """
    if (metapath is None) == (length is None):
        raise InputError(
            f"length is {length} and metapath {metapath}: exactly one of them must set the number of steps of a walk; give one"
        )
    path = (
        [(require_homogeneous(g).canonical_etypes[0], int(length))]
        if length is not None
        else [(each, 1) for each in _canonical(g, metapath)]
    )
    having = {relation for relation, _ in path if prob in g.edges[relation].data} if prob is not None and is_hetero(g) else set()
    made, steps = [], []
    for relation, number in path:
        one = convert_relation(g, relation, "out", None if having and relation not in having else prob)
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
    """Return the canonical edge types of a metapath.

    Raises:
        InputError: an edge type does not exist, or does not begin at the node type where the previous one ends.
    """
    known = {name: relation for relation in g.canonical_etypes for name in (relation, relation[1])}
    unknown = [name for name in metapath if name not in known]
    if unknown or not metapath:
        raise InputError(
            f"metapath is {list(metapath)}: its steps must be edge types of the graph; choose from {join_limited(g.canonical_etypes)}"
        )
    path = [g.to_canonical_etype(name) for name in metapath]
    for before, after in pairwise(path):
        if before[2] != after[0]:
            raise InputError(
                f"metapath is {list(metapath)}: each step must begin where the walk is, but {after[1]!r} begins at {after[0]!r} and {before[1]!r} "
                f"ends at {before[2]!r}; choose another step"
            )
    return path


def pack_traces(traces: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Concatenate walks, without the entries after their ends; a drop-in replacement for ``dgl.sampling.pack_traces``.

    Args:
        traces: (W, L) node ids of each walk, -1 after the end of the walk.
        types: (L,) node type of each step.

    Returns:
        The nodes (N,) of all walks, their types (N,), the length (W,) of each walk, and the offset (W,) of its first node.
    """
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
    """Return the graph of the k edges with the largest weights of each node; a drop-in replacement for ``dgl.sampling.select_topk``.

    Among edges of equal weight, those with smaller ids are taken first.

    Raises:
        InputError: a node, an edge type or the feature ``weight`` does not exist, or ``k`` is below -1.
    """
    numbers = fanouts_by_relation(on_host(g), [k], "values of k")
    chosen = None if nodes is None else by_type(g, nodes, g.ntypes, "nodes")
    kept = {}
    for relation, (number,) in numbers.items():
        if number < -1:
            raise InputError(f"k is {number}: each node keeps k edges; give 0 or more, or -1 for all edges")
        graph = convert_relation(g, relation, edge_dir).graph
        own = np.arange(graph.num_nodes) if chosen is None else chosen.get(relation[2 if edge_dir == "in" else 0], np.zeros(0, np.int64))
        if len(own):
            check_nodes(own, graph.num_nodes)
        ids = _heaviest(graph, get_edge_feature(g, relation, weight), own, number, ascending)
        kept[relation] = torch.from_numpy(ids).to(g.idtype)
    made = dgl.edge_subgraph(g, kept, relabel_nodes=False, store_ids=True)
    for kind in () if copy_ndata else g.ntypes:
        made.nodes[kind].data.clear()
    for relation in () if copy_edata else g.canonical_etypes:
        made.edges[relation].data.clear()
    return made if output_device is None else made.to(output_device)


def _heaviest(graph: Any, values: Tensor, chosen: Array, k: int, ascending: bool) -> Array:
    """Return the ids (N,) int64 of the up to k edges with the largest ``values`` (E,) of each node in ``chosen``; k = -1 takes all edges."""
    begins, degrees = graph.indptr[chosen].astype(np.int64), (graph.indptr[chosen + 1] - graph.indptr[chosen]).astype(np.int64)
    owners = np.repeat(np.arange(len(chosen)), degrees)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    ids = np.asarray(graph.ids_of(rank + np.repeat(begins, degrees)), np.int64)
    keys = values.reshape(-1)[torch.from_numpy(ids)].numpy()
    descending = _ranks(keys) if ascending else -_ranks(keys)
    order = np.lexsort((ids, descending, owners))
    kept: Array = ids[order[rank < (len(owners) if k < 0 else k)]]
    return kept


def _ranks(keys: Array) -> Array:
    """Return the rank (N,) int64 of each key among the distinct keys. Negated ranks sort in descending order also for integer keys."""
    return np.unique(keys, return_inverse=True)[1]


def _tables(made: ConvertedGraph) -> AliasTables:
    """Return alias tables of the edge weights, built once for each graph."""
    return made.get_or_make("alias tables", lambda: build_alias_tables(made.graph))


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(dgl.sampling, name):
        raise AttributeError(f"neither module 'hoptrain.dgl.sampling' nor dgl.sampling has an attribute {name!r}")
    return getattr(dgl.sampling, name)
