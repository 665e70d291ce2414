"""Links held out of a graph, for link prediction: the graph without them, and pairs to be told from pairs that are no links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.kernels.cpu.shuffle import permutation, random_words
from hoptrain.kernels.shared.philox import HOP_HELD_OUT

_MOST_VERTICES = 3_000_000_000
"""A pair of vertices is numbered by an int64."""
_ATTEMPTS = 50


class HeldOut(NamedTuple):
    """N links, and as many pairs of distinct vertices without a link in the whole graph, in either direction."""

    pairs: Array
    """(2, 2 N) int64, sources above destinations, the links first."""
    labels: Array
    """(2 N,) float32, 1 for the links."""


def hold_out_links(graph: Graph, shares: Mapping[str, float], seed: int = 0) -> tuple[Graph, dict[str, HeldOut]]:
    """Take links out of a graph at random.

    A link is an unordered pair of distinct vertices that an edge joins; with it go all copies of its edges, in both directions, so that no
    message tells of it. The same for the same seed.

    Args:
        graph: the graph.
        shares: part of the links for each name, together below 1.
        seed: of the choice.

    Returns:
        The graph of the other edges, and the links held out by name.

    Raises:
        InputError: shares that cannot be, a share without a link, too many vertices, or a graph in which hardly any pair is no link.
    """
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        raise InputError(f"shares of the links are {dict(shares)}: each is at least 0, together they are below 1; correct them")
    if graph.num_nodes > _MOST_VERTICES:
        raise InputError(f"the graph has {graph.num_nodes:,} vertices: links are held out of up to {_MOST_VERTICES:,}; take a part of it")
    if not 0 <= seed < 1 << 64:
        raise InputError(f"the seed of the links held out is {seed}: seeds are 64-bit; give a number from 0 to 2**64 - 1")
    destinations = graph.destinations()
    sources = graph.indices.astype(np.int64)
    keys = _keys(sources, destinations, graph.num_nodes)
    links = np.unique(keys[sources != destinations])
    order = permutation(len(links), seed, 0, HOP_HELD_OUT)
    held, taken, begin = {}, np.zeros(0, np.int64), 0
    for place, (name, share) in enumerate(shares.items()):
        number = int(share * len(links))
        if share > 0 and number == 0:
            raise InputError(f"the share {share} of {len(links):,} links is none: hold out more, or nothing")
        chosen = np.sort(links[order[begin : begin + number]])
        held[name] = _with_negatives(chosen, links, graph.num_nodes, seed, place)
        taken, begin = np.r_[taken, chosen], begin + number
    return graph.with_edges(~np.isin(keys, taken)), held


def _keys(sources: Array, destinations: Array, num_nodes: int) -> Array:
    """(N,) int64, the same for both directions of a pair."""
    keys: Array = np.minimum(sources, destinations) * np.int64(num_nodes) + np.maximum(sources, destinations)
    return keys


def _with_negatives(chosen: Array, links: Array, num_nodes: int, seed: int, place: int) -> HeldOut:
    positives, negatives = np.stack(np.divmod(chosen, max(num_nodes, 1))), np.zeros((2, 0), np.int64)
    for attempt in range(1, 1 + _ATTEMPTS):
        if negatives.shape[1] >= len(chosen):
            break
        words = random_words(4 * len(chosen) + 32, seed, attempt, place, HOP_HELD_OUT)
        drawn = (words % np.uint64(max(num_nodes, 1))).astype(np.int64).reshape(2, -1)
        is_none = (drawn[0] != drawn[1]) & ~np.isin(_keys(drawn[0], drawn[1], num_nodes), links)
        negatives = np.concatenate([negatives, drawn[:, is_none]], axis=1)
    else:
        raise InputError("hardly any pair of vertices is without a link: there is nothing to tell the links from; take another graph")
    labels = np.repeat(np.array([1, 0], np.float32), len(chosen))
    return HeldOut(np.concatenate([positives, negatives[:, : len(chosen)]], axis=1), labels)
