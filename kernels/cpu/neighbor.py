"""Neighbour sampling and relabelling on the CPU, one hop at a time.

Shapes: V vertices and E edges of the graph, D destinations and M sampled edges of the hop. Global ids name vertices of the graph, local ids
count the nodes of the mini-batch, positions count the edges of the graph (index into ``indices``).

A hop is two passes over the destinations: ``count_neighbors`` fixes how many edges each one gets, so that the caller can provide arrays of
the exact size; ``draw_neighbors`` fills them; ``relabel`` then turns global ids into local ones.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.draws import bounded
from hoptrain.kernels.shared.philox import four_words

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)


@cpu_kernel
def count_neighbors(indptr, nodes, fanout, replace, out_indptr):
    """Offsets of a hop: ``out_indptr`` (D+1,) from the degrees of the D destinations; returns M.

    A vertex gives min(degree, fanout) edges, with replacement ``fanout`` edges if it has any neighbour; fanout -1 means all of them.
    """
    total = 0
    out_indptr[0] = 0
    for i in range(len(nodes)):
        degree = indptr[nodes[i] + 1] - indptr[nodes[i]]
        if fanout < 0 or (degree <= fanout and (degree == 0 or not replace)):
            total += degree
        else:
            total += fanout
        out_indptr[i + 1] = total
    return total


@cpu_kernel
def draw_neighbors(indptr, indices, nodes, fanout, replace, key, out_indptr, out_edges, out_neighbors):
    """Draw the edges of a hop: their positions in the graph into ``out_edges`` (M,), their source vertices into ``out_neighbors`` (M,).

    ``key`` (4,) uint64 is (seed, epoch, batch, hop). The edges of a destination stand in the order of their draws; where all neighbours
    are taken, in the graph's order.
    """
    for i in range(len(nodes)):
        vertex = np.int64(nodes[i])
        begin = np.int64(indptr[vertex])
        degree = np.int64(indptr[vertex + 1]) - begin
        first = np.int64(out_indptr[i])
        count = np.int64(out_indptr[i + 1]) - first
        if fanout < 0 or (count == degree and not replace):
            for j in range(count):
                out_edges[first + j] = j
        elif replace:
            _draw_with_replacement(degree, count, key, vertex, out_edges, first)
        else:
            _draw_without_replacement(degree, count, key, vertex, out_edges, first)
        for j in range(first, first + count):
            position = begin + out_edges[j]
            out_edges[j] = position
            out_neighbors[j] = indices[position]


@cpu_kernel
def _words(key, vertex, group):
    return four_words(key[0], key[1], key[2], key[3], np.uint64(vertex), np.uint64(group))


@cpu_kernel
def _draw_with_replacement(degree, count, key, vertex, out, first):
    n = np.uint64(degree)
    for group in range((count + 3) // 4):
        words = _words(key, vertex, group)
        for lane in range(min(4, count - 4 * group)):
            out[first + 4 * group + lane] = bounded(words[lane], n)


@cpu_kernel
def _draw_without_replacement(degree, count, key, vertex, out, first):
    """Floyd's method (Bentley & Floyd, CACM 1987): ``count`` distinct offsets of [0, degree), every subset equally likely.

    ``seen`` is a filter of 64 bits: a clear bit proves that an offset is new, a set one is settled by looking.
    """
    seen = _U0
    words = _words(key, vertex, 0)
    for j in range(count):
        if j % 4 == 0 and j > 0:
            words = _words(key, vertex, j // 4)
        top = degree - count + j
        offset = bounded(words[j % 4], np.uint64(top + 1))
        if (seen >> (np.uint64(offset) & _U63)) & _U1 and (degree <= 64 or _contains(out, first, first + j, offset)):
            offset = top
        seen |= _U1 << (np.uint64(offset) & _U63)
        out[first + j] = offset


@cpu_kernel
def _contains(values, begin, end, value):
    for i in range(begin, end):  # noqa: SIM110 - Numba compiles no generator
        if values[i] == value:
            return True
    return False


@cpu_kernel
def relabel(neighbors, table, nodes, num_nodes):
    """Turn global ids into local ones, in place; new vertices are appended to ``nodes`` in order of first appearance.

    ``neighbors`` (M,) global ids in, local ids out; ``nodes`` holds ``num_nodes`` known vertices and has room for M more; returns the new
    number. The known vertices must have been entered by ``relabel(seeds, table, nodes, 0)`` and the calls after it, with the same
    ``table``; one that was not counts as new. ``table`` (V,) uint32 is scratch that never needs clearing (the sparse set of Briggs &
    Torczon 1993): an entry counts only if ``nodes`` at that place names the vertex.
    """
    for j in range(len(neighbors)):
        vertex = neighbors[j]
        local = np.int64(table[vertex])
        if local >= num_nodes or nodes[local] != vertex:
            local = num_nodes
            table[vertex] = local
            nodes[local] = vertex
            num_nodes += 1
        neighbors[j] = local
    return num_nodes
