"""LABOR on the CPU: of all in-edges of a hop's destinations those are kept whose source's random word lies below the edge's threshold.

Every column is read from its beginning to its end; random words are computed for some hundreds of edges at a time, so that the processor's
vector units do it. Edges are written without a branch, each over the one before it if that was dropped.

The decision compares whole numbers; a weight is 2**32 / threshold, so it is exact whatever the threshold. Where the importances of the sources
differ: ``hoptrain.kernels.cpu.nodewise.importance``.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.shared.draws import wanted
from hoptrain.kernels.shared.labor import CERTAIN, even_threshold, is_kept
from hoptrain.kernels.shared.philox import four_words

LANES = 512
"""Edges whose words are computed at a time."""
_PIECE = 256
AHEAD = 16
"""Destinations."""
_LINE = 16
_LINES = 8
_U0, _U1, _B24 = (np.uint64(n) for n in (0, 1, 24))
_UNIT = 4294967296.0
_RARE = 24
"""Upper bytes below which so few sources lie that a branch is guessed well."""


class Kept(NamedTuple):
    """The edges of a hop that are kept; all but ``indptr`` have room for as many."""

    indptr: Any
    """Entry i + 1 receives the end of destination i's edges."""
    edge_ids: Any
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
    """Fill ``words`` (num,) uint32 with the random words of the nodes ``sources[:num]``: the first ones of their streams.

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
def keep_evenly(indptr, indices, nodes, cursor, last, fanout, address, sources, words, kept):
    """Keep edges into ``nodes[:last]`` from ``cursor`` on, all of a destination's with the same probability: LABOR-0.

    ``sources`` and ``words`` (LANES,) are scratch. Returns the cursor where there was no room left, or the one at the end.
    """
    room = len(kept.edge_ids)
    while cursor.destination < last:
        lanes, edges, after = _fill_lanes(indptr, indices, nodes, cursor, last, fanout, sources)
        if cursor.num_edges + edges >= room:
            break
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
        _ask_ahead(indptr, indices, nodes, i, last)
        column = np.int64(indptr[nodes[i]])
        degree = np.int64(indptr[nodes[i] + 1]) - column
        taken = degree
        if degree > wanted(degree, fanout):
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
    out_indptr, edge_ids, out_sources, weights = kept.indptr, kept.edge_ids, kept.sources, kept.weights
    lane, num_edges, offset = 0, begin.num_edges, begin.offset
    for i in range(begin.destination, end.destination + (1 if end.offset > 0 else 0)):
        column = np.int64(indptr[nodes[i]])
        degree = np.int64(indptr[nodes[i] + 1]) - column
        until = degree if i < end.destination else end.offset
        start, threshold = num_edges, even_threshold(degree, fanout)
        if threshold == CERTAIN:
            for j in range(degree):
                edge_ids[num_edges + j] = column + j
                out_sources[num_edges + j] = indices[column + j]
            num_edges += degree
        else:
            for j in range(until - offset):
                edge_ids[num_edges] = column + offset + j
                out_sources[num_edges] = sources[lane + j]
                num_edges += 1 if is_kept(words[lane + j], threshold) else 0
            lane += until - offset
        weights[start:num_edges] = weight_of(threshold)
        out_indptr[i + 1] = num_edges
        offset = 0
    return Cursor(end.destination, end.offset, num_edges)


@cpu_kernel
def all_words(address, word_of, high_of):
    """Fill ``word_of`` (V,) uint32 with the words of all nodes, and ``high_of`` (V,) uint8 with their upper bytes."""
    sources = np.empty(_PIECE, np.int64)
    for begin in range(0, len(word_of), _PIECE):
        for i in range(_PIECE):
            sources[i] = begin + i
        words, highs = word_of[begin : begin + _PIECE], high_of[begin : begin + _PIECE]
        source_words(sources, len(words), address, words)
        for i in range(len(words)):
            highs[i] = words[i] >> _B24


@cpu_kernel
def keep_evenly_known(indptr, indices, nodes, cursor, last, fanout, word_of, high_of, chosen, kept):
    """As ``keep_evenly``, with the words of all nodes at hand (``all_words``); ``chosen`` (LANES,) int32 is scratch.

    The upper byte of a word turns away nearly all edges that are not kept; all of them together are a quarter of the words, and stay in a
    cache. Only what is left is compared as a whole.
    """
    edge_ids, out_sources, weights, out_indptr = kept.edge_ids, kept.sources, kept.weights, kept.indptr
    num_edges = cursor.num_edges
    for i in range(cursor.destination, last):
        _ask_ahead(indptr, indices, nodes, i, last)
        column, end = np.int64(indptr[nodes[i]]), np.int64(indptr[nodes[i] + 1])
        if num_edges + end - column >= len(edge_ids):
            return Cursor(i, 0, num_edges)
        start, threshold = num_edges, even_threshold(end - column, fanout)
        if threshold == CERTAIN:
            for j in range(end - column):
                edge_ids[num_edges + j] = column + j
                out_sources[num_edges + j] = indices[column + j]
            num_edges += end - column
        else:
            highest = np.uint8((threshold - _U1) >> _B24)
            for begin in range(column, end, len(chosen)):
                number = _choose(indices, begin, min(end - begin, len(chosen)), high_of, highest, chosen)
                for j in places(0, number):
                    position, entry = unsigned(begin + chosen[j]), unsigned(num_edges)
                    source = indices[position]
                    edge_ids[entry] = position
                    out_sources[entry] = source
                    num_edges += 1 if is_kept(word_of[unsigned(source)], threshold) else 0
        weights[start:num_edges] = weight_of(threshold)
        out_indptr[i + 1] = num_edges
    return Cursor(last, 0, num_edges)


@cpu_kernel
def _choose(indices, begin, number, high_of, highest, chosen):
    """Write which of ``number`` edges from ``begin`` on have a source with an upper byte up to ``highest``; returns how many.

    With a branch where nearly none has. Places are unsigned: a negative one would have to be looked for at the end of the array.
    """
    first, found = np.uint64(begin), _U0
    if highest < _RARE:
        for j in range(np.uint64(number)):
            if high_of[np.uint64(indices[first + j])] <= highest:
                chosen[found] = j
                found += _U1
    else:
        for j in range(np.uint64(number)):
            chosen[found] = j
            found += np.uint64(high_of[np.uint64(indices[first + j])] <= highest)
    return np.int64(found)


@cpu_kernel
def _ask_ahead(indptr, indices, nodes, i, last):
    """Ask for the offsets of a later destination, and for the beginning of a nearer one's column."""
    prefetch(indptr, np.int64(nodes[min(i + 2 * AHEAD, last - 1)]))
    ask_lines(indices, np.int64(indptr[nodes[min(i + AHEAD, last - 1)]]))


@cpu_kernel
def ask_lines(ids, begin):
    """Ask for the beginning of a column; the processor fetches the rest by itself."""
    for line in range(_LINES):
        prefetch(ids, begin + line * _LINE)


@cpu_kernel
def weight_of(threshold):
    """How many edges a kept one stands for: the inverse of its probability."""
    return np.float32(_UNIT / np.float64(threshold))
