"""Conversion of a PyG ``HeteroData`` object to a ``HeteroGraph``, done once for each object."""

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
from hoptrain.pyg.graphs import check_edges, get_state, in_order


class ConvertedHeteroGraph(NamedTuple):
    """A heterogeneous graph in CSC order that was made from a PyG ``HeteroData``.

    Attributes:
        graph: The graph, with edge weights and times if requested. If edges are reversed, the names of the relations are reversed, too.
        permutation: (E,) int64 PyG edge id of each CSC position, by PyG edge type; None for a type whose ids equal positions.
    """

    graph: HeteroGraph
    permutation: dict[Relation, Tensor | None]


_KEPT: Any = WeakIdKeyDictionary()
"""``HeteroData`` -> conversion options -> (state of the data at its conversion, converted graph, tensors in that state)."""


def convert_hetero(
    data: HeteroData,
    *,
    backward: bool = False,
    is_sorted: bool = False,
    weight_attr: str | None = None,
    time_attr: str | None = None,
    untimed: bool = False,
) -> ConvertedHeteroGraph:
    """Convert ``data`` to a ``HeteroGraph``. The result is cached until edges, weights or times change, or ``data`` is deleted.

    Edge types without the attribute have no weights or times. With node times an edge has the time of the end that is sampled: its source, or its
    destination if ``backward``.

    Args:
        data: Graph with ``edge_index`` (2, E) or a sparse ``adj_t`` for each edge type.
        backward: Whether to reverse every edge.
        is_sorted: Whether the edges are sorted by destination.
        weight_attr: Name of the edge attribute with the weights.
        time_attr: Name of the edge or node attribute with the times.
        untimed: Whether edges without times get the time 0.

    Raises:
        InputError: ``data`` has no edge types, the number of nodes of a type is unknown, an edge type has no edges or invalid ones, or an
            attribute has not one value for each edge.
    """
    if not data.edge_types:
        raise InputError(
            "data has no edge types: there is nothing to sample from; give an edge_index such as data['user', 'buys', 'item'].edge_index"
        )
    for kind in {kind: None for first, _, last in data.edge_types for kind in (first, last)}:
        if data[kind].num_nodes is None:
            raise InputError(
                f"{kind} has no num_nodes: the number of nodes must be known; set data[{kind!r}].num_nodes, or give features x"
            )
    edges = {relation: _edges(data, relation) for relation in data.edge_types}
    names = [name for name in (weight_attr, time_attr) if name is not None]
    values = [*edges.values(), *(store[name] for name in names for store in data.stores if name in store)]
    state = (*map(get_state, values), *((kind, data[kind].num_nodes) for kind in data.node_types), *edges)
    options = backward, is_sorted, weight_attr, time_attr, untimed
    kept = _KEPT.setdefault(data, {})
    if options not in kept or kept[options][0] != state:
        for relation, own in edges.items():
            num_src, num_dst = (data[kind].num_nodes for kind in (relation[0], relation[2]))
            check_num_nodes(max(int(num_src), int(num_dst)), MAX_VERTEX)
            check_edges(data[relation], own, num_src, num_dst, relation_name(relation))
        kept[options] = state, _convert(data, *options), values
    found: ConvertedHeteroGraph = kept[options][1]
    return found


def _edges(data: HeteroData, relation: Relation) -> Any:
    edges = data[relation].get("edge_index", data[relation].get("adj_t"))
    if edges is None:
        raise InputError(f"{relation_name(relation)} has neither edge_index nor adj_t: there is nothing to sample from; give one of them")
    return edges


def _convert(
    data: HeteroData, backward: bool, is_sorted: bool, weight_attr: str | None, time_attr: str | None, untimed: bool
) -> ConvertedHeteroGraph:
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
    return ConvertedHeteroGraph(HeteroGraph(num_nodes, columns, weights=weights, times=times), permutation)
