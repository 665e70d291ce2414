"""Links held out of one relation of a typed graph, for link prediction.

Both ends are numbered as in a plain graph that has the sources' type first and the destinations' type behind it: source u is u, destination v is
V_s + v, also where both are of one type. So links, pairs that are none, ranks and scores are those of plain graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.derived.link_split import hold_out_latest, hold_out_links
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, RelationColumns, relation_name


class TypedLinkSplit(NamedTuple):
    """What ``hold_out_typed_links`` makes of a graph."""

    graph: HeteroGraph
    """Without the links that are held out; edges keep their ids."""
    links: dict[str, Array]
    """(2, N) int64 by name, sources above destinations, numbered as above."""
    known: Graph
    """All links of the relation, in both directions, numbered so."""
    passed: Graph
    """Those that are left."""


def hold_out_typed_links(
    graph: HeteroGraph,
    relation: Relation,
    shares: Mapping[str, float],
    *,
    reverse: Relation | None = None,
    seed: int = 0,
    by_time: bool = False,
) -> TypedLinkSplit:
    """Take links out of a relation, at random or the latest ones, with all copies of their edges, and those of its ``reverse``.

    Args:
        graph: the graph.
        relation: whose edges are links. A link is an ordered pair of vertices, unless the relation is its own ``reverse``.
        shares: part of the links for each name, together below 1.
        reverse: the relation of edges v -> u; its edges go with the links u -> v.
        seed: of the choice.
        by_time: take the links that came last, as ``hold_out_latest``: then no edge of any relation with times stays that is as late as the first of them.

    Raises:
        InputError: a relation that there is not, or another one that has the same edges turned round and is not ``reverse``; as ``hold_out_links`` or
            ``hold_out_latest``.
    """
    _check_relations(graph, relation, reverse)
    columns, is_mutual = graph.relations[relation], relation == reverse
    if by_time and columns.times is None:
        raise InputError(
            f"split is time and the edges of {relation_name(relation)} have no times: give them to HeteroGraph or HeteroGraph.from_edges, or hold "
            "links out by share"
        )
    offset = 0 if is_mutual else columns.num_src
    plain = _plain(columns, offset)
    left, links = hold_out_latest(plain, shares) if by_time else hold_out_links(plain, shares, seed)
    is_left = np.zeros(columns.num_edges, bool)
    is_left[left.ids_of(np.arange(left.num_edges))] = True
    kept = {relation: is_left}
    if reverse is not None and not is_mutual:
        kept[reverse] = ~np.isin(_keys(graph.relations[reverse], turned=True), np.setdiff1d(_keys(columns), _keys(columns)[is_left]))
    if by_time and not is_left.all() and columns.times is not None:
        begin = columns.times[~is_left].min()
        for other, own in graph.relations.items():
            if own.times is not None:
                kept[other] = kept.get(other, np.ones(own.num_edges, bool)) & (own.times < begin)
    made = HeteroGraph(graph.num_nodes, {})
    made.relations = {other: _with_edges(own, kept[other]) if other in kept else own for other, own in graph.relations.items()}
    if is_mutual:
        links = {name: own + np.array([[0], [columns.num_src]]) for name, own in links.items()}
    return TypedLinkSplit(made, links, _both_ways(columns), _both_ways(made.relations[relation]))


def _check_relations(graph: HeteroGraph, relation: Relation, reverse: Relation | None) -> None:
    known = ", ".join(map(relation_name, graph.relations))
    for asked in (relation, reverse):
        if asked is not None and asked not in graph.relations:
            raise InputError(f"relation {relation_name(asked)} is not in the graph: it has {known}; choose one of them")
    columns = graph.relations[relation]
    if not columns.num_edges:
        raise InputError(f"relation {relation_name(relation)} has no edges: nothing can be learnt of it; choose one that has some")
    turned = [other for other in graph.relations if (other[2], other[0]) == (relation[0], relation[2]) and other != reverse]
    for other in turned if reverse is None else []:
        own = graph.relations[other]
        if own.num_edges == columns.num_edges and np.array_equal(np.sort(_keys(own, turned=True)), np.sort(_keys(columns))):
            raise InputError(
                f"relation {relation_name(other)} has the edges of {relation_name(relation)} turned round: what is asked for would be known; "
                f"give the sampler exclude reverse and reverse_relation {list(other)}"
            )


def _plain(columns: RelationColumns, offset: int) -> Graph:
    """The edges into vertices that are numbered from ``offset``; an edge's id is its place in the relation."""
    indptr = np.concatenate([np.zeros(offset, columns.indptr.dtype), columns.indptr])
    number = len(indptr) - 1
    indices = columns.indices.astype(id_dtype(number), copy=False)
    return Graph(indptr, indices, times=columns.times, validate=False)


def _both_ways(columns: RelationColumns) -> Graph:
    """Sources and, behind them, destinations, linked in both directions."""
    src, dst = columns.indices.astype(np.int64), columns.num_src + columns.destinations()
    return Graph.from_pairs(src, dst, columns.num_src + columns.num_nodes)


def _keys(columns: RelationColumns, turned: bool = False) -> Array:
    """(E,) int64: the number of the pair of a source and a destination that each edge joins, or that it joins when it is turned round."""
    ends, width = (columns.indices.astype(np.int64), columns.destinations()), columns.num_nodes
    if turned:
        ends, width = ends[::-1], columns.num_src
    keys: Array = ends[0] * width + ends[1]
    return keys


def _with_edges(columns: RelationColumns, is_kept: Array) -> RelationColumns:
    """Some of the edges, with their weights, times and ids; as ``Graph.with_edges``."""
    places = np.flatnonzero(is_kept)
    indptr = np.concatenate([[0], np.cumsum(is_kept)])[columns.indptr].astype(offset_dtype(len(places)))
    weights, times = (None if own is None else own[places] for own in (columns.weights, columns.times))
    edge_ids = columns.ids_of(places).astype(id_dtype(columns.num_edges) if columns.edge_ids is None else columns.edge_ids.dtype)
    return RelationColumns(
        indptr, columns.indices[places], columns.num_src, weights=weights, times=times, edge_ids=edge_ids, validate=False
    )
