"""Functions of ``dgl.sampling`` over hoptrain: ``from hoptrain.dgl.sampling import random_walk``. Names, arguments and results are DGL's."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.blocks import as_ids
from hoptrain.dgl.graphs import Converted, converted
from hoptrain.dgl.outputs import dgl
from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Workspace
from hoptrain.samplers.checks import check_vertices
from hoptrain.samplers.programs.edge_walks import edge_walks
from hoptrain.samplers.scratch.alias import NO_TABLES, AliasTables, build_alias_tables


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
    """See ``dgl.sampling.random_walk``, for graphs of one type: walks along the edges, -1 after an end.

    Draws follow from one number of torch's generator. A walk also ends where all edges have the probability 0, of which DGL says nothing.

    Raises:
        InputError: a typed graph, vertices that do not exist, neither a length nor a metapath, a probability that is none.
    """
    if metapath is not None and any(etype not in (g.etypes[0], g.canonical_etypes[0]) for etype in metapath):
        raise InputError(f"metapath is {metapath}: a graph of one type has the edges {g.canonical_etypes[0]} alone; give length")
    if (metapath is None) == (length is None):
        raise InputError(f"length is {length} and metapath {metapath}: one of them says how many steps a walk has; give one")
    steps = len(metapath) if length is None else int(length)
    made = converted(g, "out", prob)
    ends = 0.0 if restart_prob is None else torch.as_tensor(restart_prob, dtype=torch.float64).cpu().numpy()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    found = edge_walks(made.graph, _as_ids(g, nodes), steps, ends, _tables(made, prob), seed=seed, workspace=Workspace(os.cpu_count() or 1))
    traces, types = torch.from_numpy(found.vertices).to(g.idtype), torch.zeros(steps + 1, dtype=torch.int64)
    if not return_eids:
        return traces, types
    return traces, torch.from_numpy(made.graph.ids_of(found.places).astype(np.int64)).to(g.idtype), types


def pack_traces(traces: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See ``dgl.sampling.pack_traces``: the vertices of all walks (N,), their types, the length (W,) of each walk, and where it begins (W,)."""
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
    """See ``dgl.sampling.select_topk``, for graphs of one type. Of edges with the same weight those with the smaller ids are taken.

    Raises:
        InputError: a typed graph, vertices or a feature that do not exist, k below -1.
    """
    if isinstance(k, dict) or k < -1:
        raise InputError(f"k is {k}: a vertex of a graph of one type keeps k edges, 0 or more, or -1 for all; correct it")
    graph = converted(g, edge_dir).graph
    if weight not in g.edata:
        raise InputError(f"edges have no feature {weight!r}: they have {', '.join(g.edata) or 'none'}; name one of these")
    values = g.edata[weight].reshape(g.num_edges(), -1)
    if values.shape[1] != 1:
        raise InputError(
            f"the feature {weight!r} has the shape {tuple(g.edata[weight].shape)}: edges are chosen by one number each; give such a one"
        )
    chosen = np.arange(graph.num_nodes) if nodes is None else _as_ids(g, nodes)
    begins, degrees = graph.indptr[chosen].astype(np.int64), (graph.indptr[chosen + 1] - graph.indptr[chosen]).astype(np.int64)
    owners = np.repeat(np.arange(len(chosen)), degrees)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    ids = np.asarray(graph.ids_of(rank + np.repeat(begins, degrees)), np.int64)
    keys = values[torch.from_numpy(ids), 0].numpy()
    descending = _places_of(keys) if ascending else -_places_of(keys)
    order = np.lexsort((ids, descending, owners))
    kept = ids[order[rank < (len(owners) if k < 0 else k)]]
    made = dgl.edge_subgraph(g, torch.from_numpy(kept).to(g.idtype), relabel_nodes=False, store_ids=True)
    if not copy_ndata:
        made.ndata.clear()
    if not copy_edata:
        made.edata.clear()
    return made if output_device is None else made.to(output_device)


def _places_of(keys: Array) -> Array:
    """(N,) int64, the place of each among the distinct ones: of integers, too, the negative stands for the other order."""
    return np.unique(keys, return_inverse=True)[1]


def _as_ids(g: Any, nodes: Any) -> Array:
    return check_vertices(as_ids(torch.as_tensor(nodes)), int(g.num_nodes()))


def _tables(made: Converted, prob: str | None) -> AliasTables:
    """Of the weights, made once."""
    return NO_TABLES if prob is None else made.kept("alias tables", lambda: build_alias_tables(made.graph))
