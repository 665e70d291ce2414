"""Draws of one *unit* of work. All schedules use the same units, so a schedule affects only the speed.

Every request, which is a destination of a batch, owns a range of the output, given by the scan of the counts. A request is split into units that any
thread may process in any order:

* if all edges are taken: ``COPY_UNIT`` edges a unit, or one edge if the hop takes all edges of every node (adjacent threads then copy adjacent
  edges);
* without replacement: the whole request, since Floyd's method is sequential, as is selection sampling for shares of the degree;
* with replacement: the draws of one group of four random words, four draws or two weighted draws.

Shapes: V nodes and E edges of the graph, K batches with a row of every matrix each. A hop's destinations are ``nodes[b, low[b]:high[b]]``.

These functions must use few registers; otherwise too few threads fit on a multiprocessor to hide the memory latency. Hence ``while`` loops: Numba's
``range`` would keep a count, a step and a trip number. Indices of innermost loops are unsigned because Numba checks signed ones for negative
values.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.draws import ALL, alias_offset, bounded, num_draws, selects, takes_all, wanted, word_at
from hoptrain.kernels.shared.philox import four_words

DISTINCT = 0
REPLACE = 1
WEIGHTED = 2
"""Draw modes: ``DISTINCT`` is without replacement, ``REPLACE`` with replacement, ``WEIGHTED`` by edge weight with replacement."""

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)


@shared
def unit_size(degree, fanout, mode):
    """Return the number of draws of a unit of work; the last unit of a request may have fewer."""
    if takes_all(degree, fanout, mode != DISTINCT):
        return 1 if fanout == ALL else COPY_UNIT
    if mode == DISTINCT:
        return wanted(degree, fanout)
    return 4 if mode == REPLACE else 2


@shared
def num_units(degree, fanout, mode):
    """Return the number of units of work of a request; 0 if its node has no edges to draw."""
    size = unit_size(degree, fanout, mode)
    return (num_draws(degree, fanout, mode != DISTINCT) + size - 1) // size


@device_function
def column(indptr, alias, mode, vertex):
    """Return the beginning and the degree of a node's column; the degree is 0 if all weights are 0."""
    begin = np.int64(indptr[vertex])
    degree = np.int64(indptr[vertex + 1]) - begin
    if mode == WEIGHTED and degree > 0 and alias[begin] < 0:
        degree = np.int64(0)
    return begin, degree


@id_kernel("void(ID[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, ID[:, ::1])")
def count_draws(indptr, alias, nodes, low, high, fanout, mode, counts):
    """Write the number of edges to draw into each destination to ``counts`` (K, at least the largest ``high``), at the destination's position."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        _, degree = column(indptr, alias, mode, nodes[b, i])
        counts[b, i] = num_draws(degree, fanout, mode != DISTINCT)


@device_function
def write_edge(adjacency, shift, begin, offset, b, place, out_edges, out_neighbors):
    """Write one edge and its source ``adjacency[shift + offset]``; ``adjacency`` is the graph's array (shift = begin) or a copy of the column (0)."""
    out_edges[np.uint64(b), np.uint64(place)] = begin + offset
    out_neighbors[np.uint64(b), np.uint64(place)] = adjacency[np.uint64(shift + offset)]


@device_function
def draw_unit(adjacency, shift, threshold, alias, begin, degree, fanout, mode, address, vertex, unit, b, first, out_edges, out_neighbors):
    """Process one unit of work of a request whose edges are written from position ``first`` of row ``b``."""
    count = num_draws(degree, fanout, mode != DISTINCT)
    size = unit_size(degree, fanout, mode)
    begins, ends = unit * size, min(count, unit * size + size)
    if takes_all(degree, fanout, mode != DISTINCT):
        offset = begins
        while offset < ends:
            write_edge(adjacency, shift, begin, offset, b, first + offset, out_edges, out_neighbors)
            offset += 1
        return
    if fanout < ALL and mode == DISTINCT:
        select_edges(adjacency, shift, begin, degree, count, address, vertex, b, first, out_edges, out_neighbors)
        return
    words = 2 if mode == WEIGHTED else 1  # number of random words per draw
    seen = _U0
    word0 = word1 = word2 = word3 = np.uint32(0)
    j = begins
    while j < ends:
        lane = (j * words) & 3
        if lane == 0:
            word0, word1, word2, word3 = words_at(address, b, vertex, (j * words) >> 2)
        word = word_at(lane, word0, word1, word2, word3)
        if mode == DISTINCT:
            offset = floyd_offset(word, degree - count + j, degree, seen, out_edges, b, first, j, begin)
            seen |= _U1 << (np.uint64(offset) & _U63)
        else:
            offset = bounded(word, degree)
        if mode == WEIGHTED:
            second = word_at(lane + 1, word0, word1, word2, word3)
            offset = alias_offset(offset, second, threshold[np.uint64(begin + offset)], np.int64(alias[np.uint64(begin + offset)]))
        write_edge(adjacency, shift, begin, offset, b, first + j, out_edges, out_neighbors)
        j += 1


@device_function
def select_edges(adjacency, shift, begin, degree, rest, address, vertex, b, place, out_edges, out_neighbors):
    """Draw ``rest`` edges of a column by selection sampling (``hoptrain.kernels.shared.draws``), and write them from ``place`` on."""
    word0 = word1 = word2 = word3 = np.uint32(0)
    offset = np.int64(0)
    while rest > 0:
        if offset & 3 == 0:
            word0, word1, word2, word3 = words_at(address, b, vertex, offset >> 2)
        if selects(word_at(offset & 3, word0, word1, word2, word3), degree - offset, rest):
            write_edge(adjacency, shift, begin, offset, b, place, out_edges, out_neighbors)
            place += 1
            rest -= 1
        offset += 1


@device_function
def words_at(address, b, vertex, group):
    """Return four random words as ``uint32``, which take half the registers of ``uint64``.

    ``address`` is read again in each call; otherwise the compiler would keep 20 round keys in registers.
    """
    word0, word1, word2, word3 = four_words(
        address[0], address[1], address[2] + np.uint64(b), address[3], np.uint64(vertex), np.uint64(group)
    )
    return np.uint32(word0), np.uint32(word1), np.uint32(word2), np.uint32(word3)


@device_function
def floyd_offset(word, top, degree, seen, out_edges, b, first, drawn, begin):
    """Return the offset of draw number ``drawn`` by Floyd's method (``hoptrain.kernels.shared.draws``); earlier draws are read from the output.

    ``seen`` is a filter of 64 bits: a clear bit proves that an offset is new; for a set bit the earlier draws are searched.
    """
    offset = bounded(word, top + 1)
    if (seen >> (np.uint64(offset) & _U63)) & _U1 == _U0:
        return offset
    return top if degree <= 64 or is_drawn(out_edges, b, first, drawn, begin + offset) else offset


@device_function
def is_drawn(out_edges, b, first, count, edge):
    """Return whether ``edge`` is among the ``count`` edges from ``first`` on in row ``b``."""
    j = first
    while j < first + count:
        if out_edges[np.uint64(b), np.uint64(j)] == edge:
            return True
        j += 1
    return False
