"""LABOR on the CPU: an in-edge of a hop's destinations is kept if the random word of its source is below the edge's threshold.

Every column is read completely. Random words are computed for some hundreds of edges at a time by the processor's vector units. Edges are
written without a branch: each edge overwrites the edge before it if that edge was dropped.

The decision compares integers, and a weight is 2**32 / threshold, so weights are exact for every threshold. For sources with different importances
see ``hoptrain.kernels.cpu.nodewise.importance``.
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
"""Number of edges whose random words are computed in one pass."""
_PIECE = 256
AHEAD = 16
"""Prefetch distance, in destinations."""
_LINE = 16
_LINES = 8
_U0, _U1, _B24 = (np.uint64(n) for n in (0, 1, 24))
_UNIT = 4294967296.0
_RARE = 24
"""If the upper byte of the threshold is below this value, a branch decides about each edge. It is predicted well, since few edges are kept."""


class KeptEdges(NamedTuple):
    """The kept edges of a hop. All arrays except for ``indptr`` have the same capacity."""

    indptr: Any
    """(D+1,) offsets. Entry i + 1 receives the offset after the last edge of destination i."""
    edge_ids: Any
    sources: Any
    """Global ids of the sources of the kept edges."""
    weights: Any
    """float32 weights of the kept edges, 1 / probability."""


class Cursor(NamedTuple):
    """The position of a hop that is processed in several calls."""

    destination: int
    offset: int
    """Number of edges of the current destination that were already processed."""
    num_edges: int
    """Number of edges that were kept so far."""


@cpu_kernel
def source_words(sources, num, address, words):
    """Fill ``words`` (num,) uint32 with the first random word of each node in ``sources[:num]``.

    The loop is split into pieces because LLVM vectorises the inner loop only if it is nested in another one: 4 ns per word instead of 20 ns.
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
    """Keep edges into ``nodes[:last]`` from ``cursor`` on, with the same probability for all edges of a destination: LABOR-0.

    ``sources`` and ``words`` (LANES,) are scratch memory. Returns the cursor where the capacity of ``kept`` ran out, or the end.
    """
    capacity = len(kept.edge_ids)
    while cursor.destination < last:
        lanes, edges, after = _fill_lanes(indptr, indices, nodes, cursor, last, fanout, sources)
        if cursor.num_edges + edges >= capacity:
            break
        source_words(sources, lanes, address, words)
        cursor = _keep_lanes(indptr, indices, nodes, cursor, after, fanout, sources, words, kept)
    return cursor


@cpu_kernel
def _fill_lanes(indptr, indices, nodes, cursor, last, fanout, sources):
    """Copy columns from ``cursor`` on until the lanes are full. Columns whose edges are all taken need no lanes.

    Returns the number of lanes in use, the number of edges between the old and the new cursor, and the new cursor.
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
    """Keep edges between two cursors, whose sources and words are in the lanes. Return ``end`` with the new number of edges."""
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
    """Fill ``word_of`` (V,) uint32 with the random words of all nodes, and ``high_of`` (V,) uint8 with their upper bytes."""
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
    """Keep edges as ``keep_evenly`` does, with the words of all nodes computed before (``all_words``). ``chosen`` (LANES,) int32 is scratch memory.

    The upper byte of a word rejects nearly all edges that are not kept. The upper bytes take a quarter of the memory of the words, and stay in a
    cache. Only the remaining edges need a comparison of whole words.
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
    """Select edges whose source's random word has an upper byte of at most ``highest``, among ``number`` edges from ``begin`` on.

    Write the offsets of the selected edges to ``chosen``, and return their number.

    The loop branches if such edges are rare. Indices are unsigned because Numba would check signed ones for negative values.
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
    """Prefetch the column offsets of a later destination, and the beginning of the column of a nearer one."""
    prefetch(indptr, np.int64(nodes[min(i + 2 * AHEAD, last - 1)]))
    ask_lines(indices, np.int64(indptr[nodes[min(i + AHEAD, last - 1)]]))


@cpu_kernel
def ask_lines(ids, begin):
    """Prefetch the beginning of a column. The processor's own prefetcher fetches the rest."""
    for line in range(_LINES):
        prefetch(ids, begin + line * _LINE)


@cpu_kernel
def weight_of(threshold):
    """Return the number of edges for which a kept edge stands: the inverse of its probability."""
    return np.float32(_UNIT / np.float64(threshold))
