"""Ranks of links by their logits, among given negatives or among all nodes, computed in parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array

Bounds: TypeAlias = tuple[int, int]
"""A range [begin, end) of node numbers."""
MOST_NUMBERS = 1 << 24
"""Approximate maximum number of values that are computed at once. All pairs that a link is ranked among are always computed at once."""


@torch.no_grad()
def scores_in_parts(decoder: Any, vectors: Tensor, pairs: Tensor) -> Tensor:
    """Compute logits (N,) of ``pairs`` (2, N), sources above destinations, from the rows of ``vectors`` (V, C)."""
    parts: Any = torch.split(pairs, max(1, MOST_NUMBERS // (2 * vectors.shape[1])), 1)
    return torch.cat([decoder(*vectors[part]) for part in parts])


def ranks_among(scores: Tensor, others: Tensor) -> Tensor:
    """Return the ranks (N,), from 1, of ``scores`` (N,), each among its row of ``others`` (N, K). With ties, a rank is the mean of the best and the worst.

    NaN in ``scores`` ranks last, and NaN in ``others`` ranks above the score: comparisons are negated for this.
    """
    own = scores[:, None]
    return 1 + ((~(others <= own)).sum(1) + (~(others < own)).sum(1)) / 2


@torch.no_grad()
def ranks_among_all(decoder: Any, vectors: Tensor, links: Tensor, known: Graph, ends: tuple[Bounds, Bounds] | None = None) -> Tensor:
    """Return the ranks of links among all nodes: of each destination for its source, and of each source for its destination.

    Ranks are filtered (Bordes et al. 2013, "Translating embeddings for modeling multi-relational data"): other nodes that have a known link with the
    source (or the destination) do not count.

    Args:
        decoder: computes logits of pairs of vectors; its ``against`` computes those of vectors with all others.
        vectors: vectors (V, C) of all nodes.
        links: links (2, N) int64, sources above destinations.
        known: graph of all known links, including ``links``, in both directions.
        ends: ranges [begin, end) of the possible sources and of the possible destinations; ``known`` has no links outside them. By default all nodes.

    Returns:
        Ranks (2 N,), those of the destinations first.
    """
    sources, destinations = ends or ((0, len(vectors)),) * 2
    ranks = [
        ranks_but(scores, other[rows] - bounds[0], *_linked_with(known, given[rows], bounds))
        for given, other, is_source, bounds in ((links[0], links[1], True, destinations), (links[1], links[0], False, sources))
        for rows, scores in _against_all(decoder, vectors, given, is_source, bounds)
    ]
    return torch.cat(ranks)


def _against_all(decoder: Any, vectors: Tensor, given: Tensor, is_source: bool, others: Bounds) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of ``given`` (N,), with the logits (n, V) of the slice's n nodes, each paired with the V nodes in ``others``."""
    against = vectors[others[0] : others[1]]
    most = max(1, MOST_NUMBERS // (len(against) * decoder.numbers_a_pair(vectors.shape[1])))
    for begin in range(0, len(given), most):
        rows = slice(begin, begin + most)
        yield rows, decoder.against(vectors[given[rows]], against, is_source)


@torch.no_grad()
def best_of_sources(
    decoder: Any, vectors: Tensor, links: Tensor, bounds: Bounds, known: Graph, number: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the best destinations of the sources of ``links``, in parts of bounded size, and the links of these sources.

    Destinations that are linked with a source in ``known`` come last, and so do NaN logits.

    Args:
        decoder: computes logits of pairs of vectors; its ``against`` computes those of vectors with all others.
        vectors: vectors (V, C) of all nodes.
        links: links (2, N) int64, sources above destinations.
        bounds: range [begin, end) of the D destinations.
        known: graph in both directions.
        number: number of destinations per source, K, at most D.

    Yields:
        For B sources, their best destinations (B, K) in [0, D), the best first; and their links (2, n), each once: row 0 has the number of the source
        in this part, in [0, B), and row 1 the destination minus begin.
    """
    begin = bounds[0]
    sources, rows = torch.unique(links[0], return_inverse=True)
    own = torch.unique(torch.stack([rows, links[1] - begin]), dim=1)
    for part, scores in _against_all(decoder, vectors, sources, True, bounds):
        places = (torch.from_numpy(each).to(scores.device) for each in _linked_with(known, sources[part], bounds))
        scores.nan_to_num_(nan=-torch.inf)[tuple(places)] = -torch.inf
        place = torch.searchsorted(own[0].contiguous(), torch.tensor([part.start, part.start + len(scores)], device=own.device))
        mine = own[:, int(place[0]) : int(place[1])]
        yield scores.topk(number).indices, torch.stack([mine[0] - part.start, mine[1]])


def _linked_with(known: Graph, nodes: Tensor, bounds: Bounds) -> tuple[Array, Array]:
    """Return the links in ``known`` from nodes in ``bounds`` to ``nodes``: positions in ``nodes``, and sources as offsets in ``bounds``."""
    own = nodes.cpu().numpy()
    rows, places = _spans(known.indptr[own].astype(np.int64), np.diff(known.indptr)[own].astype(np.int64))
    columns = known.indices[places].astype(np.int64)
    is_inside = (columns >= bounds[0]) & (columns < bounds[1])
    return rows[is_inside], columns[is_inside] - bounds[0]


def _spans(begins: Array, sizes: Array) -> tuple[Array, Array]:
    """Expand N ranges of consecutive positions. Return for each element the index of its range, and its position."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return rows, np.arange(len(rows)) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)


def ranks_but(scores: Tensor, answers: Tensor, rows: Array, columns: Array) -> Tensor:
    """Return the ranks (n,) of ``answers`` (n,) by ``scores`` (n, V), without the M scores at ``rows`` and ``columns`` (M,), which are overwritten."""
    own = scores.gather(1, answers[:, None])[:, 0]
    scores[torch.from_numpy(rows).to(scores.device), torch.from_numpy(columns).to(scores.device)] = -torch.inf
    return ranks_among(own, scores)


class KnownTails(NamedTuple):
    """An index of the known tails of each pair of head and relation.

    Attributes:
        num_relations: number of relations, including inverse ones.
        keys: head * num_relations + relation of each triple (M,) int64, ascending.
        tails: tails (M,) int64.
    """

    num_relations: int
    keys: Array
    tails: Array

    @classmethod
    def of(cls, triples: Array, num_relations: int) -> KnownTails:
        """Build the index from ``triples`` (M, 3): heads, relations and tails."""
        keys = triples[:, 0] * num_relations + triples[:, 1]
        order = np.argsort(keys, kind="stable")
        return cls(num_relations, keys[order], triples[order, 2])

    def places(self, heads: Array, relations: Array) -> tuple[Array, Array]:
        """Return the T known tails of N queries (head and relation): the query's index (T,), ascending, and the tails (T,)."""
        asked = heads * self.num_relations + relations
        begins, ends = (np.searchsorted(self.keys, asked, side=side) for side in ("left", "right"))
        rows, places = _spans(begins, ends - begins)
        return rows, self.tails[places]
