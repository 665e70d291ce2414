"""With which probability a walk visits a node, and both ends of an edge: by counts over walks that begin at each root equally often."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.subgraphs.induced import clear_bits

_SEARCH = 32
"""Edges of a column for each node of a walk, from which that node is looked for."""
_U1, _U6, _U63 = np.uint64(1), np.uint64(6), np.uint64(63)


@cpu_kernel
def count_visits(walks, stride, indptr, indices, is_sorted, bits, visits, pairs):
    """Count what walks of ``stride`` nodes each visit; every walk counts once.

    ``visits`` (V,) int64 counts at their nodes but the first, ``pairs`` (E,) uint32 at the edges between two different nodes of a walk, unless
    it is empty. ``is_sorted``: whether sources ascend within a column. ``walks`` is used up; ``bits`` is a bitmap over the nodes, empty
    before and after.
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
    """Count a node's in-edges from others that are in the bitmap."""
    for e in places(indptr[vertex], indptr[vertex + 1]):
        source = np.uint64(indices[e])
        if (bits[source >> _U6] >> (source & _U63)) & _U1 and indices[e] != vertex:
            pairs[e] += 1


@cpu_kernel
def _look_for_pairs(indptr, indices, vertex, own, pairs):
    """The same by a search for each of the others."""
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
def steadied(count, beside):
    """A count of rare events that stands beside a known number, made larger by up to 1 so that 1 / (count + beside) has hardly any bias.

    It has none to second order in the count's relative error where either is large; alone (``beside`` is 0) the mean of the inverse falls short by
    the factor 1 - exp(-the expected count).
    """
    return count + (count + 1.0) / (count + 1.0 + beside)


@cpu_kernel
def walk_rates(walks, known, is_seed, visits, hits):
    """``hits`` (V,) float64: the probability that a walk visits each node, by ``visits`` on ``walks`` of which every seed began ``known``."""
    for v in range(len(visits)):
        beside = np.float64(known) if is_seed[v] else 0.0
        count = np.float64(visits[v])
        hits[v] = min((beside + steadied(count, beside)) / np.float64(walks), 1.0) if count + beside > 0.0 else 0.0


@cpu_kernel
def walk_pair_rates(indptr, indices, draws, walks, hits, pairs, rates):
    """``rates`` (E,) float32: the probability that a walk visits both ends of each edge, by ``pairs`` (E,).

    Beside the walks that visit both there are the pairs of walks of which one visits this end and one the other: of subgraphs of ``draws`` walks
    both kinds together make up the edge's probability. Returns the mean square of that probability's relative standard error over the edges
    between visited nodes, each as often as walks visit the one that it enters.
    """
    total, weight = 0.0, 0.0
    for v in range(len(indptr) - 1):
        for e in places(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            beside = np.float64(draws) * np.float64(walks) * hits[v] * hits[unsigned(u)]
            if u != v and beside > 0.0:
                count = np.float64(pairs[e])
                more = steadied(count, beside)
                rates[e] = more / np.float64(walks)
                total += hits[v] * (more - count) / (more + beside)
                weight += hits[v]
    return total / weight if weight > 0.0 else 0.0
