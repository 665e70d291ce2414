"""LABOR on the CPU: of all in-edges of a hop's destinations those are kept whose source's random word lies below the edge's threshold.

Every column is read from its beginning to its end; random words are computed for some hundreds of edges at a time, so that the processor's
vector units do it. Edges are written without a branch, each over the one before it if that was dropped.

Where the importances of the sources differ they are doubles, made by +, * and / in an order that the destinations fix: the same on every
machine. The decision itself compares integers; a weight is 2**32 / threshold, so it is exact whatever the threshold.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.shared.labor import CERTAIN, even_threshold, is_kept
from hoptrain.kernels.shared.philox import four_words

LANES = 512
"""Edges whose words are computed at a time."""
_PIECE = 256
_AHEAD = 16
_LINE = 16
_MOST_LINES = 8
"""Lines of a column that are asked for ahead; the processor fetches further ones by itself."""
_U0 = np.uint64(0)
_UNIT = 4294967296.0


class Kept(NamedTuple):
    """The edges of a hop that are kept; all but ``indptr`` have room for as many."""

    indptr: Any
    """Entry i + 1 receives the end of destination i's edges."""
    positions: Any
    sources: Any
    """Global ids."""
    weights: Any
    """float32, 1 / probability."""


class Cursor(NamedTuple):
    """How far a hop is."""

    destination: int
    offset: int
    """Edges of the destination that were looked at already."""
    num_edges: int
    """Edges kept so far."""


@cpu_kernel
def source_words(sources, num, address, words):
    """Fill ``words`` (num,) uint32 with the random words of the vertices ``sources[:num]``: the first ones of their streams.

    In pieces, since LLVM makes vector instructions of the inner loop only where it stands in another one: 4 ns a word instead of 20.
    """
    seed, epoch, batch, hop = address
    for begin in range(0, num, _PIECE):
        end = min(begin + _PIECE, num)
        _words_of(sources[begin:end], seed, epoch, batch, hop, words[begin:end])


@cpu_kernel
def _words_of(sources, seed, epoch, batch, hop, words):
    for i in range(len(sources)):
        words[i] = four_words(seed, epoch, batch, hop, np.uint64(sources[i]), _U0)[0]


@cpu_kernel
def keep_evenly(indptr, indices, nodes, cursor, last, fanout, address, word_of, sources, words, kept):
    """Keep edges into ``nodes[:last]`` from ``cursor`` on, all of a destination's with the same probability: LABOR-0.

    ``word_of`` holds the words of all V vertices, or is empty; ``sources`` and ``words`` (LANES,) are scratch. Returns the cursor where
    there was no room left, or the one at the end.
    """
    room = len(kept.positions)
    while cursor.destination < last:
        lanes, edges, after = _fill_lanes(indptr, indices, nodes, cursor, last, fanout, sources)
        if cursor.num_edges + edges >= room:
            break
        if len(word_of):
            for j in range(lanes):
                words[j] = word_of[sources[j]]
        else:
            source_words(sources, lanes, address, words)
        cursor = _keep_lanes(indptr, indices, nodes, cursor, after, fanout, sources, words, kept)
    return cursor


@cpu_kernel
def _fill_lanes(indptr, indices, nodes, cursor, last, fanout, sources):
    """Copy columns from ``cursor`` on until the lanes are full; those with all edges taken need none.

    Returns the lanes in use, the edges met, and the cursor behind them.
    """
    lanes, edges = 0, 0
    i, offset = cursor.destination, cursor.offset
    while i < last and lanes < len(sources):
        prefetch(indptr, np.int64(nodes[min(i + 2 * _AHEAD, last - 1)]))
        ahead = np.int64(indptr[nodes[min(i + _AHEAD, last - 1)]])
        for line in range(_MOST_LINES):
            prefetch(indices, ahead + line * _LINE)
        column = np.int64(indptr[nodes[i]])
        degree = np.int64(indptr[nodes[i] + 1]) - column
        taken = degree
        if degree > fanout:
            taken = min(degree - offset, len(sources) - lanes)
            for j in range(taken):
                sources[lanes + j] = indices[column + offset + j]
            lanes += taken
        edges += taken
        offset += taken
        if offset == degree:
            i, offset = i + 1, 0
    return lanes, edges, Cursor(i, offset, cursor.num_edges)


@cpu_kernel
def _keep_lanes(indptr, indices, nodes, begin, end, fanout, sources, words, kept):
    """Keep edges between two cursors, whose sources and words stand in the lanes. Returns ``end`` with the number of edges."""
    out_indptr, positions, out_sources, weights = kept.indptr, kept.positions, kept.sources, kept.weights
    lane, num_edges, offset = 0, begin.num_edges, begin.offset
    for i in range(begin.destination, end.destination + (1 if end.offset > 0 else 0)):
        column = np.int64(indptr[nodes[i]])
        degree = np.int64(indptr[nodes[i] + 1]) - column
        until = degree if i < end.destination else end.offset
        start, threshold = num_edges, even_threshold(degree, fanout)
        if threshold == CERTAIN:
            for j in range(degree):
                positions[num_edges + j] = column + j
                out_sources[num_edges + j] = indices[column + j]
            num_edges += degree
        else:
            for j in range(until - offset):
                positions[num_edges] = column + offset + j
                out_sources[num_edges] = sources[lane + j]
                num_edges += 1 if is_kept(words[lane + j], threshold) else 0
            lane += until - offset
        weights[start:num_edges] = _weight(threshold)
        out_indptr[i + 1] = num_edges
        offset = 0
    return Cursor(end.destination, end.offset, num_edges)


@cpu_kernel
def all_words(address, word_of):
    """Fill ``word_of`` (V,) uint32 with the words of all vertices."""
    sources = np.empty(_PIECE, np.int64)
    for begin in range(0, len(word_of), _PIECE):
        for i in range(_PIECE):
            sources[i] = begin + i
        piece = word_of[begin : begin + _PIECE]
        source_words(sources, len(piece), address, piece)


# Importances


@cpu_kernel
def find_importances(ends, locals_, fanout, rounds, importance, factor, scale):
    """``rounds`` fixed-point iterations from importance 1, for the columns ``locals_[ends[i]:ends[i + 1]]`` of D destinations.

    ``importance`` (N,) float64 receives the sources' importances by local id, ``scale`` (D,) float64 the destinations' factors c;
    ``factor`` (N,) float64 is scratch. A round multiplies a source's importance by the largest c of its destinations.
    """
    importance[:] = 1.0
    for _ in range(rounds):
        factor[:] = 0.0
        for i in range(len(ends) - 1):
            c = scale_of(locals_[ends[i] : ends[i + 1]], fanout, importance)
            for e in range(ends[i], ends[i + 1]):
                factor[locals_[e]] = max(factor[locals_[e]], c)
        for v in range(len(importance)):
            importance[v] *= factor[v]  # 0 for a destination that is nobody's source: it is not read
    for i in range(len(ends) - 1):
        scale[i] = scale_of(locals_[ends[i] : ends[i + 1]], fanout, importance)


@cpu_kernel
def scale_of(column, fanout, importance):
    """The c of a destination with the sources ``column`` (d,): sum of 1 / min(1, c importance) = d**2 / fanout, or all edges for d <= fanout.

    Each step takes the sources that have probability 1 at the c before as settled and solves for the others. c only grows by that, and so
    does the number of the settled, so it ends with the exact solution after at most d steps; a few in practice.
    """
    degree = len(column)
    largest = 0.0
    if degree <= fanout:
        for j in range(degree):
            largest = max(largest, 1.0 / importance[column[j]])
        return largest
    target = np.float64(degree) * np.float64(degree) / np.float64(fanout)
    c, settled = 0.0, -1
    while True:
        count, rest = 0, 0.0
        for j in range(degree):
            if c * importance[column[j]] >= 1.0:
                count += 1
            else:
                rest += 1.0 / importance[column[j]]
        if count <= settled:
            return c
        c, settled = rest / (target - count), count


@cpu_kernel
def keep_by_importance(indptr, nodes, ends, locals_, cursor, fanout, importance, scale, words, kept):
    """Keep edges by ``find_importances``; ``nodes`` and ``words`` (uint32) by local id. Returns as ``keep_evenly``."""
    positions, out_sources, weights = kept.positions, kept.sources, kept.weights
    num_edges = cursor.num_edges
    for i in range(cursor.destination, len(ends) - 1):
        begin, degree = ends[i], ends[i + 1] - ends[i]
        if num_edges + degree >= len(positions):
            return Cursor(i, 0, num_edges)
        column, c = np.int64(indptr[nodes[i]]), scale[i]
        for j in range(degree):
            source = locals_[begin + j]
            threshold = CERTAIN if degree <= fanout else _threshold(c * importance[source])
            positions[num_edges] = column + j
            out_sources[num_edges] = nodes[source]
            weights[num_edges] = _weight(threshold)
            num_edges += 1 if is_kept(words[source], threshold) else 0
        kept.indptr[i + 1] = num_edges
    return Cursor(len(ends) - 1, 0, num_edges)


@cpu_kernel
def _threshold(probability):
    """A probability as a threshold, at least 1 / 2**32."""
    return CERTAIN if probability >= 1.0 else max(np.uint64(1), np.uint64(probability * _UNIT))


@cpu_kernel
def _weight(threshold):
    """How many edges a kept one stands for: the inverse of its probability."""
    return np.float32(_UNIT / np.float64(threshold))
