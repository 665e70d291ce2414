"""Links held out of relations of a typed graph, for link prediction.

Both ends are numbered as in a plain graph that has the sources' type first and the destinations' type behind it: source u is u, destination v is
V_s + v, also where both are of one type; those of each further relation follow behind. So links, pairs that are none, ranks and scores are those of
plain graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.derived.link_split import LinkSplit, SharedLinks, given_links, hold_out_latest, hold_out_links
from hoptrain.engine.errors import InputError, naming
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name


class TypedLinkSplit(NamedTuple):
    """What ``hold_out_typed_links`` makes of a graph."""

    graph: HeteroGraph
    """Without the links that are held out; edges keep their ids."""
    links: dict[str, Array]
    """(2, N) int64 by name, sources above destinations, numbered as above."""
    known: Graph
    """All links of the relations, in both directions, numbered so."""
    passed: Graph
    """Those that are left."""


Reverses: TypeAlias = Mapping[Relation, Relation | None]
"""Relations whose edges are links, and of each the relation of edges v -> u, whose edges go with the links u -> v. A link is an ordered pair of vertices,
unless a relation is its own reverse."""


def hold_out_typed_links(
    graph: HeteroGraph, relations: Reverses, shares: Mapping[str, float], *, seed: int = 0, by_time: bool = False
) -> TypedLinkSplit:
    """Take links out of relations, at random or the latest ones, with all copies of their edges, and those turned round.

    Args:
        graph: the graph.
        relations: see ``Reverses``.
        shares: part of the links of each relation for each name, together below 1.
        seed: of the choice.
        by_time: take the links that came last, as ``hold_out_latest``: then no edge of any relation with times stays that is as late as the first of them.

    Raises:
        InputError: a relation that there is not, or another one that has the same edges turned round and is not its reverse; no times; as
            ``hold_out_links`` or ``hold_out_latest``.
    """

    def hold(relation: Relation, plain: Graph, first: int) -> LinkSplit:
        if by_time and plain.times is None:
            raise InputError(
                "split is time and the edges have no times: give them to HeteroGraph or HeteroGraph.from_edges, or hold links out by share"
            )
        return hold_out_latest(plain, shares) if by_time else hold_out_links(plain, shares, seed)

    return _held_out(graph, relations, hold, by_time)


def given_typed_links(data: HeteroDataset, relations: Reverses, shared_links: SharedLinks | None = None) -> TypedLinkSplit:
    """The links of ``data.edge_splits`` of some relations; see ``given_links``. With links that are left out go those turned round.

    Raises:
        InputError: a relation has no such splits; as ``hold_out_typed_links`` and ``given_links``.
    """

    def hold(relation: Relation, plain: Graph, first: int) -> LinkSplit:
        places = {name: data.graph.relations[relation].places_of(ids) for name, ids in data.edge_splits.get(relation, {}).items()}
        return given_links(Dataset(name=data.name, graph=plain, edge_splits=places, meta=data.meta), shared_links, first)

    return _held_out(data.graph, relations, hold, False)


def _held_out(graph: HeteroGraph, relations: Reverses, hold: Callable[[Relation, Graph, int], LinkSplit], by_time: bool) -> TypedLinkSplit:
    """What is left when ``hold`` has taken links of each relation out of its edges as a plain graph, whose destinations are numbered from ``first``."""
    _check_relations(graph, relations)
    kept = {relation: np.ones(columns.num_edges, bool) for relation, columns in graph.relations.items()}
    links: dict[str, list[Array]] = {}
    begin, earliest = 0, np.iinfo(np.int64).max
    for relation, reverse in relations.items():
        columns, first = graph.relations[relation], 0 if relation == reverse else graph.relations[relation].num_src
        with naming(relation_name(relation)):
            left, own = hold(relation, _plain(columns, first), first)
        is_left = np.zeros(columns.num_edges, bool)
        is_left[left.ids_of(np.arange(left.num_edges))] = True
        kept[relation] &= is_left
        if reverse not in (None, relation):
            gone = np.setdiff1d(_keys(columns), _keys(columns)[is_left])
            kept[reverse] &= ~np.isin(_keys(graph.relations[reverse], turned=True), gone)
        if by_time and columns.times is not None and not is_left.all():
            earliest = min(earliest, columns.times[~is_left].min())
        for name, ends in own.items():
            links.setdefault(name, []).append(begin + ends + np.array([[0], [columns.num_src - first]]))
        begin += columns.num_src + columns.num_nodes
    for other, columns in graph.relations.items():
        if columns.times is not None:
            kept[other] &= columns.times < earliest
    made = HeteroGraph(graph.num_nodes, {})
    made.relations = {other: own if kept[other].all() else _with_edges(own, kept[other]) for other, own in graph.relations.items()}
    known, passed = (_both_ways([of.relations[relation] for relation in relations]) for of in (graph, made))
    return TypedLinkSplit(made, {name: np.concatenate(parts, axis=1) for name, parts in links.items()}, known, passed)


def _check_relations(graph: HeteroGraph, relations: Reverses) -> None:
    known = ", ".join(map(relation_name, graph.relations))
    for relation, reverse in relations.items():
        for asked in (relation, reverse):
            if asked is not None and asked not in graph.relations:
                raise InputError(f"relation {relation_name(asked)} is not in the graph: it has {known}; choose one of them")
        columns = graph.relations[relation]
        if not columns.num_edges:
            raise InputError(f"relation {relation_name(relation)} has no edges: nothing can be learnt of it; choose one that has some")
        turned = [other for other in graph.relations if (other[2], other[0]) == (relation[0], relation[2])]
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


def _both_ways(of_relations: Sequence[RelationColumns]) -> Graph:
    """Of each relation the sources and, behind them, the destinations, linked in both directions."""
    begin, ends = 0, []
    for columns in of_relations:
        ends.append(begin + np.stack([columns.indices.astype(np.int64), columns.num_src + columns.destinations()]))
        begin += columns.num_src + columns.num_nodes
    src, dst = np.concatenate(ends, axis=1)
    return Graph.from_pairs(src, dst, begin)


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
