"""Held-out links for link prediction, and negative pairs.

A homogeneous graph is treated as a heterogeneous one whose only relation, ``ONLY``, is its own reverse. The end nodes of links of all relations share one
numbering: in each relation source u is begin + u, and destination v is begin + V_s + v, where V_s is the number of source nodes, even if both are of one
type. The next relation begins after these. In a homogeneous graph end nodes keep their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from itertools import combinations
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.dataset import ONLY, BaseDataset
from hoptrain.engine.errors import InputError, error_context
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.kernels.cpu.shuffle import permutation, random_words
from hoptrain.kernels.shared.philox import HOP_HELD_OUT

_MOST_NODES = 3_000_000_000
"""Maximum number of nodes for which a pair of nodes can be encoded as one int64."""
_ATTEMPTS = 50

Ends: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""Ranges [begin, end) of a relation's sources and of its destinations in the joint numbering of all end nodes (see above)."""

Relations: TypeAlias = Mapping[Relation, RelationColumns]

Reverses: TypeAlias = Mapping[Relation, Relation | None]
"""Relation whose edges are links -> the relation of its reverse edges, or None. With a link u -> v, the reverse edges
v -> u are removed. A link is an ordered pair of
nodes; in a relation that is its own reverse it is an unordered pair of distinct nodes."""

SharedLinks: TypeAlias = Literal["error", "drop", "keep"]


class HeldOut(NamedTuple):
    """A split's links and their negatives."""

    links: Array
    """Links (2, N) int64: sources in row 0, destinations in row 1."""
    others: Array | None
    """Negatives as int64: (2, M) shared by all links, or (2, N, K) with K for each link. None stands for all pairs without a link."""


class LinkSplit(NamedTuple):
    """The edges that stay in a graph, and the links that are held out."""

    is_kept: dict[Relation, Array]
    """(E,) bool for each relation of the graph: True for edges that stay."""
    links: dict[str, Array]
    """Links (2, N) int64 by split name: sources in row 0, destinations in row 1, in the joint numbering of all end nodes."""
    ends: list[Ends]
    """Ranges of each relation's sources and destinations in the joint numbering of all end nodes."""


_Held: TypeAlias = tuple[Array, dict[str, Array]]
"""A pair for one relation: the mask (E,) bool of the remaining edges, and the held-out links (2, N) int64 by split name, given by node ids."""


def hold_out_links(
    relations: Relations, reverses: Reverses, shares: Mapping[str, float], *, seed: int = 0, by_time: bool = False
) -> LinkSplit:
    """Hold links out of relations, at random or the latest ones, with all parallel edges and reverse edges.

    With ``by_time`` the last split gets the latest links. A link's time is that of its first edge. Links of equal times stay together in the later split,
    so a share may come out larger. All edges with times at or after the first held-out link are removed, in every relation, even if they repeat an older
    link.

    Args:
        relations: all relations of the graph.
        reverses: relation with links -> its reverse relation or None, see ``Reverses``.
        shares: share of each relation's links by split name, below 1 in total.
        seed: seed of the random choice.
        by_time: True to hold out the latest links.

    Raises:
        InputError: a relation is unknown or has no edges, another relation has the same edges reversed and is not named as the reverse, times are missing,
            a share is invalid or has no link, no earlier link is left for training, or there are too many nodes.
    """

    def hold(relation: Relation, first: int) -> _Held:
        columns = relations[relation]
        return _latest(columns, first, shares) if by_time else _at_random(columns, first, shares, seed)

    return _held_out(relations, reverses, hold, by_time)


def given_links(data: BaseDataset, reverses: Reverses, leaked_edges: SharedLinks | None = None) -> LinkSplit:
    """Hold out the links of a data set's ``edge_splits`` other than ``train``. If there is a ``train`` split, edges in no split are removed, too.

    A held-out link may have parallel or reverse edges, with other ids, among the remaining edges. ``leaked_edges`` tells how these edges are treated: ``error``
    raises, ``drop`` removes them, ``keep`` keeps them, for recurring contacts. The default is the entry in ``data.meta``, as for OGB's data sets, which keep
    their published splits, else ``error``. Edges of reverse relations are removed together with their links.

    Raises:
        InputError: a relation has no such splits, two splits share an edge, links are shared and ``leaked_edges`` is "error", or a relation is
            invalid (see ``hold_out_links``).
    """
    own = data.contents()
    choice = leaked_edges or data.meta.get("shared_links", "error")

    def hold(relation: Relation, first: int) -> _Held:
        return _given(data.name, own.relations[relation], first, own.edge_splits.get(relation, {}), choice)

    return _held_out(own.relations, reverses, hold)


def both_ways(relations: Relations, chosen: Iterable[Relation]) -> Graph:
    """Return the edges of the chosen relations as one graph, in both directions, in the joint numbering of all end nodes."""
    ends = _number_ends(relations, chosen)
    src = [begin + relations[relation].indices.astype(np.int64) for relation, ((begin, _), _) in ends.items()]
    dst = [begin + relations[relation].destinations() for relation, (_, (begin, _)) in ends.items()]
    return Graph.from_pairs(np.concatenate(src), np.concatenate(dst), max(end for _, (_, end) in ends.values()))


def _number_ends(relations: Relations, chosen: Iterable[Relation]) -> dict[Relation, Ends]:
    found, begin = {}, 0
    for relation in chosen:
        num_src, num_dst = relations[relation].num_src, relations[relation].num_nodes
        middle = begin if relation == ONLY else begin + num_src
        found[relation] = ((begin, begin + num_src), (middle, middle + num_dst))
        begin = middle + num_dst
    return found


def _held_out(relations: Relations, reverses: Reverses, hold: Callable[[Relation, int], _Held], by_time: bool = False) -> LinkSplit:
    """Hold out links of each relation with ``hold(relation, first)``, and return the split. Keys of links number destinations from ``first``."""
    _check_relations(relations, reverses)
    is_kept = {relation: np.ones(columns.num_edges, bool) for relation, columns in relations.items()}
    ends, earliest = _number_ends(relations, reverses), np.iinfo(np.int64).max
    links: dict[str, list[Array]] = {}
    for relation, reverse in reverses.items():
        columns, first = relations[relation], 0 if relation == reverse else relations[relation].num_src
        with nullcontext() if relation == ONLY else error_context(relation_name(relation)):
            is_left, own = hold(relation, first)
        is_kept[relation] &= is_left
        if reverse not in (None, relation):
            keys = link_keys(columns, 0, first)
            is_kept[reverse] &= ~np.isin(link_keys(relations[reverse], first), np.setdiff1d(keys, keys[is_left]))
        if by_time and columns.times is not None and not is_left.all():
            earliest = min(earliest, columns.times[~is_left].min())
        (begin, _), (middle, _) = ends[relation]
        for name, pairs in own.items():
            links.setdefault(name, []).append(pairs + np.array([[begin], [middle]]))
    for other, columns in relations.items():
        if columns.times is not None:
            is_kept[other] &= columns.times < earliest
    return LinkSplit(is_kept, {name: np.concatenate(parts, axis=1) for name, parts in links.items()}, list(ends.values()))


def _check_relations(relations: Relations, reverses: Reverses) -> None:
    known = ", ".join(map(relation_name, relations))
    for relation, reverse in reverses.items():
        for asked in (relation, reverse):
            if asked is not None and asked not in relations:
                raise InputError(f"relation {relation_name(asked)} is not in the graph: it has {known}; choose one of them")
        columns = relations[relation]
        if not columns.num_edges:
            what = "the graph" if relation == ONLY else f"relation {relation_name(relation)}"
            raise InputError(f"{what} has no edges: link prediction needs some; choose a relation with edges")
        turned = [other for other in relations if (other[2], other[0]) == (relation[0], relation[2])]
        for other in turned if reverse is None else []:
            own, first = relations[other], columns.num_src
            if own.num_edges == columns.num_edges and np.array_equal(np.sort(link_keys(own, first)), np.sort(link_keys(columns, 0, first))):
                raise InputError(
                    f"relation {relation_name(other)} has the reversed edges of {relation_name(relation)}, which would leak the held-out links; "
                    f"give the sampler exclude reverse and reverse_relation {list(other)}"
                )


def _at_random(columns: RelationColumns, first: int, shares: Mapping[str, float], seed: int) -> _Held:
    _check_seed(seed)
    keys = link_keys(columns, 0, first)
    links = np.unique(keys[keys >= 0])
    order = permutation(len(links), seed, 0, HOP_HELD_OUT)
    held, begin = {}, 0
    for name, number in _numbers(shares, len(links)).items():
        held[name] = np.sort(links[order[begin : begin + number]])
        begin += number
    taken = np.concatenate([np.zeros(0, np.int64), *held.values()])
    return ~np.isin(keys, taken), {name: _ends(own, columns, first) for name, own in held.items()}


def _latest(columns: RelationColumns, first: int, shares: Mapping[str, float]) -> _Held:
    if columns.times is None:
        raise InputError(
            "split is temporal, but edges have no times: pass times to Graph.from_edges or HeteroGraph.from_edges, or set split to random"
        )
    keys = link_keys(columns, 0, first)
    order = np.argsort(columns.times, kind="stable")
    order = order[keys[order] >= 0]
    links, earliest = np.unique(keys[order], return_index=True)
    times = columns.times[order][earliest]
    ascending, end, before = np.sort(times), len(times), np.ones(len(times), bool)
    held, begin_time = {}, None
    for name, number in reversed(_numbers(shares, len(links)).items()):
        is_chosen = np.zeros(len(times), bool)
        if number:
            begin_time = ascending[max(end - number, 0)]
            is_chosen = before & (times >= begin_time)
            end = int(np.searchsorted(ascending, begin_time))
        held[name] = _ends(links[is_chosen], columns, first)
        before &= ~is_chosen
    if end == 0:
        raise InputError(f"shares of the links are {dict(shares)}: no earlier link is left for training; hold out less")
    is_left = np.ones(columns.num_edges, bool) if begin_time is None else columns.times < begin_time
    return is_left, {name: held[name] for name in shares}


def _given(name: str, columns: RelationColumns, first: int, edge_splits: Mapping[str, Array], choice: SharedLinks) -> _Held:
    splits = {split: columns.csc_positions(ids) for split, ids in edge_splits.items()}
    if not splits.keys() - {"train"}:
        raise InputError(
            f"split is predefined, but {name} has no edge_splits except train: add links for val or test, or set split to random"
        )
    check_apart(name, columns, edge_splits)
    ends = np.stack([columns.indices.astype(np.int64), columns.destinations()])
    is_left = np.full(columns.num_edges, "train" not in splits)
    for split, places in splits.items():
        is_left[places] = split == "train"
    held = {split: places for split, places in splits.items() if split != "train"}
    if choice != "keep":
        keys = link_keys(columns, 0, first)
        is_shared = is_left & (keys >= 0) & np.isin(keys, keys[np.concatenate(list(held.values()))])
        if choice == "error" and is_shared.any():
            u, v = ends[:, np.flatnonzero(is_shared)[0]]
            raise InputError(
                f"{name}: {is_shared.sum():,} training edges, such as that from {u} to {v}, are copies or reverses of held-out links, which they would leak: "
                "set data.leaked_edges to drop, which removes them, or to keep"
            )
        is_left &= ~is_shared
    return is_left, {split: ends[:, places] for split, places in held.items()}


def check_apart(name: str, columns: RelationColumns, edge_splits: Mapping[str, Array]) -> None:
    """Raise InputError if two splits of a relation's edges share an edge. ``name`` is the data set's name, for the message.

    Raises:
        InputError: two splits share an edge.
    """
    for (split, own), (other, others) in combinations(edge_splits.items(), 2):
        both = np.intersect1d(own, others)
        if len(both):
            place = columns.csc_positions(both[:1])
            u, v = columns.indices[place][0], np.searchsorted(columns.indptr, place, side="right")[0] - 1
            raise InputError(
                f"the edge from {u} to {v} is in the splits {split} and {other} of {name}: splits must not share edges; remove it from one"
            )


def share_out_edges(graph: Graph, is_labelled: Array, shares: Mapping[str, float], seed: int = 0) -> dict[str, Array]:
    """Split labelled edges by shares. Return edge ids (N,) int64, ascending, by split name; ``train`` gets the rest.

    Parallel and reverse edges are in the same split, so that no edge leaks the label of an edge in another split. Self loops are for training.

    Args:
        graph: the graph.
        is_labelled: (R,) bool by edge id: True if the edge has a label.
        shares: share of the links with a labelled edge by split name, except ``train``, below 1 in total.
        seed: seed of the random choice.

    Raises:
        InputError: a share is invalid or has no link, or there are too many nodes.
    """
    _check_seed(seed)
    ids, keys = graph.ids_of(np.arange(graph.num_edges)), link_keys(graph)
    ids, keys = ids[is_labelled[ids]], keys[is_labelled[ids]]
    links, of_edge = np.unique(keys, return_inverse=True)
    begin = int(len(links) > 0 and links[0] < 0)  # self loops have a negative key
    order = begin + permutation(len(links) - begin, seed, 0, HOP_HELD_OUT)
    part, names, begin = np.zeros(len(links), np.int64), ["train", *shares], 0
    for i, number in enumerate(_numbers(shares, len(order)).values(), 1):
        part[order[begin : begin + number]] = i
        begin += number
    return {name: np.sort(ids[part[of_edge] == i]).astype(np.int64) for i, name in enumerate(names)}


class DrawPairs(Protocol):
    """The type of the functions that ``pairs_without_link`` returns, which draw negative pairs."""

    def __call__(self, number: int, seed: int, stream: int, apart: Array | None = None) -> Array:
        """Draw ``number`` pairs, (2, number) int64."""


def pairs_without_link(graph: Graph, ends: Ends | None = None) -> DrawPairs:
    """Return a function that draws distinct negative pairs uniformly: pairs of distinct nodes without an edge in either direction.

    The function takes the number of pairs, a seed and a stream, and is deterministic in these. It returns (2, number) int64. A pair and its reverse count
    as one pair. Pairs in ``apart`` (2, M), which another split has, are not drawn. ``ends`` are the ranges [begin, end) of sources and of destinations, by
    default all nodes.

    Raises:
        InputError: there are too many nodes; or, when the function is called, too few negative pairs.
    """
    keys, num_nodes = link_keys(graph), max(graph.num_nodes, 1)
    links = np.unique(keys[keys >= 0])
    begin, end = np.array(ends or ((0, num_nodes), (0, num_nodes))).T[..., None]

    def draw(number: int, seed: int, stream: int, apart: Array | None = None) -> Array:
        _check_seed(seed)
        refused = links if apart is None else np.concatenate([links, _keys(apart[0], apart[1], graph.num_nodes)])
        found = np.zeros((2, 0), np.int64)
        for attempt in range(1, 1 + _ATTEMPTS):
            if found.shape[1] >= number:
                break
            words = random_words(4 * number + 32, seed, attempt, stream, HOP_HELD_OUT)
            drawn = begin + (words.reshape(2, -1) % np.maximum(end - begin, 1).astype(np.uint64)).astype(np.int64)
            is_none = (drawn[0] != drawn[1]) & ~np.isin(_keys(drawn[0], drawn[1], graph.num_nodes), refused)
            found = np.concatenate([found, drawn[:, is_none]], axis=1)
            found = found[:, np.sort(np.unique(_keys(found[0], found[1], graph.num_nodes), return_index=True)[1])]
        else:
            raise InputError(
                f"{number:,} negative pairs are needed, but only {found.shape[1]:,} pairs of nodes without a link were found: "
                "hold out fewer links, or use a sparser graph"
            )
        return found[:, :number]

    return draw


def link_keys(columns: RelationColumns, src_begin: int = 0, dst_begin: int = 0) -> Array:
    """Return the number of each edge's link, (E,) int64, equal for both directions of the link; -1 for self loops.

    Args:
        columns: the edges.
        src_begin: number of the first source in the joint numbering of all end nodes.
        dst_begin: number of the first destination in the joint numbering of all end nodes.

    Raises:
        InputError: there are too many nodes for int64 numbers of pairs.
    """
    num_nodes = max(src_begin + columns.num_src, dst_begin + columns.num_nodes)
    if num_nodes > _MOST_NODES:
        raise InputError(f"the graph has {num_nodes:,} nodes: links can be held out of graphs with up to {_MOST_NODES:,}; use a subgraph")
    sources, destinations = src_begin + columns.indices.astype(np.int64), dst_begin + columns.destinations()
    keys = _keys(sources, destinations, num_nodes)
    keys[sources == destinations] = -1
    return keys


def _numbers(shares: Mapping[str, float], num_links: int) -> dict[str, int]:
    """Return the number of held-out links of each share."""
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        raise InputError(f"shares of the links are {dict(shares)}: each must be 0 or more, and their sum below 1; lower them")
    numbers = {name: int(share * num_links) for name, share in shares.items()}
    for name, share in shares.items():
        if share > 0 and numbers[name] == 0:
            raise InputError(f"the share {share} of {num_links:,} links is less than one link: give a larger share, or 0")
    return numbers


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise InputError(f"the seed of held-out links is {seed}: it must be a 64-bit integer; give a number from 0 to 2**64 - 1")


def _ends(keys: Array, columns: RelationColumns, first: int) -> Array:
    """Return the end nodes (2, N) of the links with the given keys, in which destinations are numbered from ``first``."""
    ends: Array = np.stack(np.divmod(keys, max(first + columns.num_nodes, 1))) - np.array([[0], [first]])
    return ends


def _keys(sources: Array, destinations: Array, num_nodes: int) -> Array:
    """Return pair numbers (N,) int64, equal for both directions of a pair."""
    keys: Array = np.minimum(sources, destinations) * np.int64(num_nodes) + np.maximum(sources, destinations)
    return keys
