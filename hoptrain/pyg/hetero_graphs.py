"""A PyG ``HeteroData`` object as a heterogeneous graph, converted once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import HeteroData
from torch_geometric.sampler.utils import reverse_edge_type, to_csc

from hoptrain.engine import HeteroGraph, InputError
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.engine.machine import check_num_nodes
from hoptrain.kernels.shared.philox import MAX_VERTEX
from hoptrain.pyg.graphs import check_edges, in_order, state_of


class HeteroConverted(NamedTuple):
    """A heterogeneous graph in the order of its columns.

    Attributes:
        graph: with what edges have of weights and times. Where every edge is turned round, so are the names of the relations.
        permutation: (E,) int64 for each of the user's edge types, the user's number of each of the graph's edges; None where they are the same.
    """

    graph: HeteroGraph
    permutation: dict[Relation, Tensor | None]


_KEPT: Any = WeakIdKeyDictionary()
"""A user's data -> what was made of them, by what it depends on besides."""


def hetero_converted(
    data: HeteroData,
    *,
    backward: bool = False,
    is_sorted: bool = False,
    weight_attr: str | None = None,
    time_attr: str | None = None,
    untimed: bool = False,
) -> HeteroConverted:
    """The graph of ``data``; kept as long as ``data`` is, and until its edges are changed. Arguments are those of ``converted``.

    Weights and times are those of the edge types that have some. Where nodes have times, an edge has that of the end that is sampled along it: its
    source, or, backward, its destination.

    Raises:
        InputError: no edge types; a type that does not say how many nodes it has, an edge type without edges, or not one value for each of them.
    """
    if not data.edge_types:
        raise InputError(
            "data has no edge types: there is nothing to sample from; give it an edge_index, as data['user', 'buys', 'item'].edge_index"
        )
    for kind in {kind: None for first, _, last in data.edge_types for kind in (first, last)}:
        if data[kind].num_nodes is None:
            raise InputError(f"{kind} has no number of nodes: set data[{kind!r}].num_nodes, or give it features")
    edges = {relation: _edges(data, relation) for relation in data.edge_types}
    names = [name for name in (weight_attr, time_attr) if name is not None]
    values = [*edges.values(), *(store[name] for name in names for store in data.stores if name in store)]
    state = (*map(state_of, values), *((kind, data[kind].num_nodes) for kind in data.node_types), *edges)
    options = backward, is_sorted, weight_attr, time_attr, untimed
    kept = _KEPT.setdefault(data, {})
    if options not in kept or kept[options][0] != state:
        for relation, own in edges.items():
            num_src, num_dst = (data[kind].num_nodes for kind in (relation[0], relation[2]))
            check_num_nodes(max(int(num_src), int(num_dst)), MAX_VERTEX)
            check_edges(data[relation], own, num_src, num_dst, relation_name(relation))
        kept[options] = state, _convert(data, *options), values
    found: HeteroConverted = kept[options][1]
    return found


def _edges(data: HeteroData, relation: Relation) -> Any:
    edges = data[relation].get("edge_index", data[relation].get("adj_t"))
    if edges is None:
        raise InputError(f"{relation_name(relation)} has neither edge_index nor adj_t: there is nothing to sample from; give one of them")
    return edges


def _convert(
    data: HeteroData, backward: bool, is_sorted: bool, weight_attr: str | None, time_attr: str | None, untimed: bool
) -> HeteroConverted:
    columns, weights, times, permutation = {}, {}, {}, {}
    for relation, store in data.edge_items():
        of_nodes = data[relation[2 if backward else 0]].get(time_attr)
        of_edges = store.get(time_attr)
        made = to_csc(store, "cpu", is_sorted=is_sorted, src_node_time=of_nodes, edge_time=of_edges, to_transpose=backward)
        indptr, indices, permutation[relation] = made
        name = reverse_edge_type(relation) if backward else relation
        columns[name] = indptr.numpy(), indices.numpy()
        if weight_attr in store:
            weights[name] = in_order(weight_attr, store[weight_attr], permutation[relation], len(indices))
        if of_edges is not None:
            times[name] = in_order(time_attr, of_edges, permutation[relation], len(indices))
        elif of_nodes is not None:
            times[name] = torch.as_tensor(of_nodes).cpu()[indices].numpy()
        elif untimed:
            times[name] = np.zeros(len(indices), np.int64)
    num_nodes = {kind: int(data[kind].num_nodes) for kind in data.node_types}
    return HeteroConverted(HeteroGraph(num_nodes, columns, weights=weights, times=times), permutation)
