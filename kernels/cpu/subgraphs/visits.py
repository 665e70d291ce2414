"""Estimates of the probability that a walk visits a node, or both ends of an edge, from walks that begin at each root equally often."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.subgraphs.induced import clear_bits

_SEARCH = 32
"""If a column's degree exceeds the number of nodes of a walk by more than this factor, the column is not scanned: each of these nodes is searched for."""
_U1, _U6, _U63 = np.uint64(1), np.uint64(6), np.uint64(63)


@cpu_kernel
def count_visits(walks, stride, indptr, indices, is_sorted, bits, visits, pairs):
    """Count the nodes and edges that walks of ``stride`` nodes visit. Each walk counts once per node or edge.

    ``visits`` (V,) int64 counts the walks at their nodes, except for the first node of each walk. ``pairs`` (E,) uint32 counts them at the edges between
    two different nodes of the walk, unless the array is empty. ``is_sorted`` tells that sources ascend within a column. ``walks`` is overwritten;
    ``bits`` is a bitmap over the nodes, empty before and after.
    """
    for begin in range(0, len(walks), stride):
        size = 0
        for i in range(begin, begin + stride):
            vertex = np.uint64(walks[i])
            word, bit = vertex >> _U6, _U1 << (vertex & _U63)
            if not bits[word] & bit:
                bits[word] |= bit
                walks[begin + size] = walks[i]
                visits[vertex] += 1 if size > 0 else 0
                size += 1
        if len(pairs) > 0:
            own = walks[begin : begin + size]
            for vertex in own:
                degree = np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex])
                if is_sorted and degree > _SEARCH * size:
                    _look_for_pairs(indptr, indices, vertex, own, pairs)
                else:
                    _go_over_pairs(indptr, indices, vertex, bits, pairs)
        clear_bits(bits, walks, begin, begin + size)


@cpu_kernel
def _go_over_pairs(indptr, indices, vertex, bits, pairs):
    """Count the in-edges of a node from other nodes in the bitmap, by a scan of its column."""
    for e in places(indptr[vertex], indptr[vertex + 1]):
        source = np.uint64(indices[e])
        if (bits[source >> _U6] >> (source & _U63)) & _U1 and indices[e] != vertex:
            pairs[e] += 1


@cpu_kernel
def _look_for_pairs(indptr, indices, vertex, own, pairs):
    """Count the in-edges of a node from other nodes of the walk, ``own``, by a binary search for each of them."""
    end = np.int64(indptr[vertex + 1])
    for source in own:
        low, high = np.int64(indptr[vertex]), end
        while low < high:
            middle = (low + high) >> 1
            if indices[unsigned(middle)] < source:
                low = middle + 1
            else:
                high = middle
        while low < end and indices[unsigned(low)] == source and source != vertex:
            pairs[unsigned(low)] += 1
            low += 1


@cpu_kernel
def reduce_bias(count, beside):
    """Add a correction of at most 1 to a count of rare events, so that 1 / (count + beside) is nearly unbiased. ``beside`` is an exactly known count.

    The bias vanishes to second order in the relative error of the count if either number is large. If ``beside`` is 0, the mean of the inverse is too
    small by the factor 1 - exp(-expected count).
    """
    return count + (count + 1.0) / (count + 1.0 + beside)


@cpu_kernel
def walk_rates(walks, known, is_seed, visits, hits):
    """Fill ``hits`` (V,) float64 with the probability that a walk visits each node, from its ``visits`` by ``walks`` walks.

    Each seed is the first node of ``known`` of these walks, which ``visits`` does not count.
    """
    for v in range(len(visits)):
        beside = np.float64(known) if is_seed[v] else 0.0
        count = np.float64(visits[v])
        hits[v] = min((beside + reduce_bias(count, beside)) / np.float64(walks), 1.0) if count + beside > 0.0 else 0.0


@cpu_kernel
def walk_pair_rates(indptr, indices, draws, walks, hits, pairs, rates):
    """Fill ``rates`` (E,) float32 with the probability that a walk visits both ends of each edge, from the counts ``pairs`` (E,).

    A subgraph of ``draws`` walks contains an edge if one walk visits both ends, or if two walks visit one end each. Both cases contribute to the
    edge's probability. Returns the mean square of the relative standard error of that probability over the edges between visited nodes, weighted
    by the rate of visits to the edge's destination.
    """
    total, weight = 0.0, 0.0
    for v in range(len(indptr) - 1):
        for e in places(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            beside = np.float64(draws) * np.float64(walks) * hits[v] * hits[unsigned(u)]
            if u != v and beside > 0.0:
                count = np.float64(pairs[e])
                more = reduce_bias(count, beside)
                rates[e] = more / np.float64(walks)
                total += hits[v] * (more - count) / (more + beside)
                weight += hits[v]
    return total / weight if weight > 0.0 else 0.0
