"""Links held out of a graph, for link prediction: the graph without them, and pairs to be told from pairs that are no links."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.kernels.cpu.shuffle import permutation, random_words
from hoptrain.kernels.shared.philox import HOP_HELD_OUT

_MOST_VERTICES = 3_000_000_000
"""A pair of vertices is numbered by an int64."""
_ATTEMPTS = 50

LinkSplit: TypeAlias = tuple[Graph, dict[str, Array]]
"""The graph that is left, and the links held out by name: (2, N) int64, sources above destinations."""


SharedLinks: TypeAlias = Literal["refuse", "drop", "keep"]


class HeldOut(NamedTuple):
    """Links, and what they are to be told from."""

    links: Array
    """(2, N) int64, sources above destinations."""
    others: Array | None
    """(2, M) int64 pairs that are no links, for all links together; or (2, N, K), K for each link; None stands for all pairs that are none."""


def hold_out_links(graph: Graph, shares: Mapping[str, float], seed: int = 0) -> LinkSplit:
    """Take links out of a graph at random.

    A link is an unordered pair of distinct vertices that an edge joins; with it go all copies of its edges, in both directions, so that no
    message tells of it. The same for the same seed.

    Args:
        graph: the graph.
        shares: part of the links for each name, together below 1.
        seed: of the choice.

    Raises:
        InputError: shares that cannot be, a share without a link, or too many vertices.
    """
    _check_seed(seed)
    keys = link_keys(graph)
    links = np.unique(keys[keys >= 0])
    order = permutation(len(links), seed, 0, HOP_HELD_OUT)
    held, begin = {}, 0
    for name, number in _numbers(shares, len(links)).items():
        held[name] = np.sort(links[order[begin : begin + number]])
        begin += number
    taken = np.concatenate([np.zeros(0, np.int64), *held.values()])
    return graph.with_edges(~np.isin(keys, taken)), {name: _ends(own, graph.num_nodes) for name, own in held.items()}


def hold_out_latest(graph: Graph, shares: Mapping[str, float]) -> LinkSplit:
    """Take the links that came last out of a graph: the last of all for the last name.

    A link is an unordered pair of distinct vertices, as old as the first of its edges. Links of the same time stay together, with the later name, so
    that a share may come out larger. All edges go that are no earlier than the first link held out, also copies of older links.

    Args:
        graph: the graph, with times.
        shares: part of the links for each name, together below 1.

    Raises:
        InputError: no times, shares that cannot be, a share without a link, no link that is early enough to learn from, or too many vertices.
    """
    if graph.times is None:
        raise InputError("split is time and the graph has no times: give them to Graph or Graph.from_edges, or hold links out by share")
    keys = link_keys(graph)
    order = np.argsort(graph.times, kind="stable")
    order = order[keys[order] >= 0]
    links, first = np.unique(keys[order], return_index=True)
    times = graph.times[order][first]
    ascending, end, before = np.sort(times), len(times), np.ones(len(times), bool)
    held, begin_time = {}, None
    for name, number in reversed(_numbers(shares, len(links)).items()):
        is_chosen = np.zeros(len(times), bool)
        if number:
            begin_time = ascending[max(end - number, 0)]
            is_chosen = before & (times >= begin_time)
            end = int(np.searchsorted(ascending, begin_time))
        held[name] = _ends(links[is_chosen], graph.num_nodes)
        before &= ~is_chosen
    if end == 0:
        raise InputError(f"shares of the links are {dict(shares)}: by time no earlier link is left to learn from; hold out less")
    is_kept = np.ones(graph.num_edges, bool) if begin_time is None else graph.times < begin_time
    return graph.with_edges(is_kept), {name: held[name] for name in shares}


def given_links(data: Dataset, shared_links: SharedLinks | None = None, first: int = 0) -> LinkSplit:
    """The links of ``data.edge_splits`` but ``train``; the graph that is left has the edges of ``train``, without it those of no split.

    A link that is held out may have copies among the edges that are left, or its reverse, under ids of their own. ``shared_links`` tells what becomes of
    them: refuse; ``drop``, which leaves them out of the graph; or ``keep``, for contacts that recur. By default what ``data.meta`` states under this
    name, as OGB's sets do, whose splits are taken as published; else refuse. Messages tell destinations less ``first``.

    Raises:
        InputError: the data set has no such splits, two of them share an edge, or links are shared and that is refused.
    """
    graph, splits = data.graph, {name: data.graph.places_of(ids) for name, ids in data.edge_splits.items()}
    if not splits.keys() - {"train"}:
        raise InputError(
            f"split is given and {data.name} has no edge_splits but for training: give Dataset some, or hold links out by share"
        )
    check_apart(data, first)
    ends = np.stack([graph.indices.astype(np.int64), graph.destinations()])
    is_kept = np.full(graph.num_edges, "train" not in splits)
    for name, places in splits.items():
        is_kept[places] = name == "train"
    choice = shared_links or data.meta.get("shared_links", "refuse")
    if choice != "keep":
        keys = link_keys(graph)
        is_shared = is_kept & (keys >= 0) & np.isin(keys, keys[np.concatenate([own for name, own in splits.items() if name != "train"])])
        if choice == "refuse" and is_shared.any():
            u, v = ends[:, np.flatnonzero(is_shared)[0]] - np.array([0, first])
            raise InputError(
                f"{data.name}: edges to learn from ({is_shared.sum():,}, that from {u} to {v} for one) are copies or reverses of links that are held "
                "out: what is asked for would be known; set data.shared_links to drop, which leaves them out, or to keep"
            )
        is_kept &= ~is_shared
    return graph.with_edges(is_kept), {name: ends[:, places] for name, places in splits.items() if name != "train"}


def check_apart(data: Dataset, first: int = 0) -> None:
    """Refuse ``edge_splits`` that share an edge; its destination is told less ``first``.

    Raises:
        InputError: two of them do.
    """
    for (name, own), (other, others) in combinations(data.edge_splits.items(), 2):
        both = np.intersect1d(own, others)
        if len(both):
            place = data.graph.places_of(both[:1])
            u, v = data.graph.indices[place][0], np.searchsorted(data.graph.indptr, place, side="right")[0] - 1 - first
            raise InputError(
                f"the edge from {u} to {v} is in the splits {name} and {other} of {data.name}: what is asked for would be known; leave it out of one"
            )


def share_out_edges(graph: Graph, is_labelled: Array, shares: Mapping[str, float], seed: int = 0) -> dict[str, Array]:
    """Labelled edges by split, ``train`` those that no share takes: (N,) int64 ids, ascending.

    Copies of an edge, in both directions, are in one split, so that none tells of another one's label; self loops are for training.

    Args:
        graph: the graph.
        is_labelled: (R,) bool by edge id.
        shares: part of the links with a labelled edge for each name but ``train``, together below 1.
        seed: of the choice.

    Raises:
        InputError: as ``hold_out_links``.
    """
    _check_seed(seed)
    ids, keys = graph.ids_of(np.arange(graph.num_edges)), link_keys(graph)
    ids, keys = ids[is_labelled[ids]], keys[is_labelled[ids]]
    links, of_edge = np.unique(keys, return_inverse=True)
    begin = int(len(links) > 0 and links[0] < 0)  # self loops
    order = begin + permutation(len(links) - begin, seed, 0, HOP_HELD_OUT)
    part, names, begin = np.zeros(len(links), np.int64), ["train", *shares], 0
    for i, number in enumerate(_numbers(shares, len(order)).values(), 1):
        part[order[begin : begin + number]] = i
        begin += number
    return {name: np.sort(ids[part[of_edge] == i]).astype(np.int64) for i, name in enumerate(names)}


class DrawPairs(Protocol):
    """What ``pairs_without_link`` returns."""

    def __call__(self, number: int, seed: int, stream: int, apart: Array | None = None) -> Array:
        """Draw (2, number) int64 pairs."""


def pairs_without_link(graph: Graph, ends: tuple[tuple[int, int], tuple[int, int]] | None = None) -> DrawPairs:
    """Return a function that draws distinct pairs of distinct nodes without an edge in either direction, each as likely.

    It takes the number of pairs, a seed and a stream, and returns the same (2, number) int64 for the same of these. A pair and its reverse are one
    pair. None of the pairs ``apart`` (2, M), which another split has, is drawn. ``ends`` are the nodes [begin, end) of sources and of destinations,
    by default all.

    Raises:
        InputError: too many nodes; by the function itself, where fewer pairs are without a link.
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
                f"{number:,} pairs of nodes without a link are asked for, and {found.shape[1]:,} were found: there is nothing to tell the links "
                "from; hold out fewer links, or take another graph"
            )
        return found[:, :number]

    return draw


def link_keys(graph: Graph) -> Array:
    """(E,) int64: the number of the link that each edge is of, the same for both directions; -1 for self loops.

    Raises:
        InputError: too many vertices.
    """
    if graph.num_nodes > _MOST_VERTICES:
        raise InputError(f"the graph has {graph.num_nodes:,} vertices: links are held out of up to {_MOST_VERTICES:,}; take a part of it")
    destinations = graph.destinations()
    sources = graph.indices.astype(np.int64)
    keys = _keys(sources, destinations, graph.num_nodes)
    keys[sources == destinations] = -1
    return keys


def _numbers(shares: Mapping[str, float], num_links: int) -> dict[str, int]:
    """How many links each share is."""
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        raise InputError(f"shares of the links are {dict(shares)}: each is at least 0, together they are below 1; correct them")
    numbers = {name: int(share * num_links) for name, share in shares.items()}
    for name, share in shares.items():
        if share > 0 and numbers[name] == 0:
            raise InputError(f"the share {share} of {num_links:,} links is none: hold out more, or nothing")
    return numbers


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise InputError(f"the seed of the links held out is {seed}: seeds are 64-bit; give a number from 0 to 2**64 - 1")


def _ends(keys: Array, num_nodes: int) -> Array:
    return np.stack(np.divmod(keys, max(num_nodes, 1)))


def _keys(sources: Array, destinations: Array, num_nodes: int) -> Array:
    """(N,) int64, the same for both directions of a pair."""
    keys: Array = np.minimum(sources, destinations) * np.int64(num_nodes) + np.maximum(sources, destinations)
    return keys
