"""Random graphs with communities and a power law of degrees: every edge and every feature is a pure function of its index.

Nodes have a rank (0 is the most popular) and an id; ``rank % num_classes`` is the community, and an affine bijection turns ranks into
ids. Edges come in pairs, one for each direction. Nothing is kept between the two passes that make the compressed columns: ``count_edges``
and ``place_edges`` generate the same pairs twice. Only +, -, * and / on doubles decide where an edge goes, which IEEE 754 rounds alike on
every machine.
"""

import numpy as np
from numba import prange

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import HOP_SYNTHETIC, four_words

_EDGES = np.uint64(0)
_NOISE = np.uint64(1)
_MEANS = np.uint64(2)
"""Purposes: the batch field of the Philox counter, so that no two of them share random words."""

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U8 = np.uint64(8)
_U16 = np.uint64(16)
_U24 = np.uint64(24)
_BYTE = np.uint64(0xFF)
_UNIT = 1.0 / (1 << 32)
_BYTES_MEAN = 510.0
_BYTES_SCALE = 1.0 / 147.80054127099805  # the sum of four uniform bytes has the variance 4 * (256**2 - 1) / 12


@cpu_kernel
def _rank(word, num_nodes, start):
    """A rank drawn with probability ~ (rank + num_nodes * start**3) ** (-2/3): degrees fall with the exponent 2.5."""
    u = start + (1.0 - start) * (np.float64(word) * _UNIT)
    floor = start * start * start
    rank = np.int64(num_nodes * ((u * u * u - floor) / (1.0 - floor)))
    return min(rank, num_nodes - 1)


@cpu_kernel
def relation_pair(pair, seed, num_src, num_dst, num_classes, start_src, start_dst, inside):
    """The ranks of a source and a destination. With probability ``inside / 2**32`` the second one is moved to the community of the first.

    A type with fewer nodes than there are classes has one for several communities.
    """
    word0, word1, word2, _ = four_words(seed, _U0, _EDGES, HOP_SYNTHETIC, np.uint64(pair), _U0)
    first = _rank(word0, num_src, start_src)
    second = _rank(word1, num_dst, start_dst)
    if word2 < inside:
        second += first % num_classes - second % num_classes
        if second >= num_dst:
            second -= num_classes
        if second < 0:
            second = (second + num_classes) % num_dst
    return first, second


@cpu_kernel
def edge_pair(pair, seed, num_nodes, num_classes, start, inside):
    """The two ranks joined by a pair, as of ``relation_pair`` with at least two nodes of each class."""
    first, second = relation_pair(pair, seed, num_nodes, num_nodes, num_classes, start, start, inside)
    if second == first:  # no self loops: the next of the same community
        second = first + num_classes if first + num_classes < num_nodes else first - num_classes
    return first, second


@cpu_kernel
def vertex_id(rank, num_nodes, factor, shift):
    """The id of a rank; ``factor`` and ``num_nodes`` have no common divisor and their product is below 2**63."""
    return (factor * rank + shift) % num_nodes


@cpu_kernel(parallel=True)
def count_edges(seed, num_pairs, num_classes, start, inside, factor, shift, counts):
    """Count the edges into each node: ``counts`` (parts, V), zero before, one row for each part of the pairs."""
    parts, num_nodes = counts.shape
    for part in prange(parts):
        for pair in range(part * num_pairs // parts, (part + 1) * num_pairs // parts):
            first, second = edge_pair(pair, seed, num_nodes, num_classes, start, inside)
            counts[part, vertex_id(first, num_nodes, factor, shift)] += 1
            counts[part, vertex_id(second, num_nodes, factor, shift)] += 1


@cpu_kernel
def counts_to_cursors(counts, indptr):
    """Turn ``counts`` in place into the position where each part begins to write a column; fills ``indptr`` (V+1,)."""
    position = 0
    for v in range(counts.shape[1]):
        indptr[v] = position
        for part in range(counts.shape[0]):
            count = counts[part, v]
            counts[part, v] = position
            position += count
    indptr[counts.shape[1]] = position


@cpu_kernel(parallel=True)
def place_edges(seed, num_pairs, num_classes, start, inside, factor, shift, cursors, indices):
    """Write every edge into its column, in an order that depends on the number of parts: sort the columns afterwards."""
    parts, num_nodes = cursors.shape
    for part in prange(parts):
        for pair in range(part * num_pairs // parts, (part + 1) * num_pairs // parts):
            first, second = edge_pair(pair, seed, num_nodes, num_classes, start, inside)
            a = vertex_id(first, num_nodes, factor, shift)
            b = vertex_id(second, num_nodes, factor, shift)
            indices[cursors[part, a]] = b
            cursors[part, a] += 1
            indices[cursors[part, b]] = a
            cursors[part, b] += 1


@cpu_kernel(parallel=True)
def fill_relation(seed, is_within, num_classes, inside, starts, sizes, factors, shifts, src, dst):
    """The ends of every edge of a relation into ``src`` and ``dst`` (E,). ``starts`` and so on have an entry for either; ``is_within`` a type."""
    for pair in prange(len(src)):
        if is_within:
            first, second = edge_pair(pair, seed, sizes[0], num_classes, starts[0], inside)
        else:
            first, second = relation_pair(pair, seed, sizes[0], sizes[1], num_classes, starts[0], starts[1], inside)
        src[pair] = vertex_id(first, sizes[0], factors[0], shifts[0])
        dst[pair] = vertex_id(second, sizes[1], factors[1], shifts[1])


@cpu_kernel(parallel=True)
def fill_labels(num_classes, factor, shift, y):
    """The community of every node into ``y`` (V,)."""
    for rank in prange(len(y)):
        y[vertex_id(rank, len(y), factor, shift)] = rank % num_classes


@cpu_kernel
def class_means(seed, means):
    """Fill ``means`` (C, F) with +1 and -1 by random bits."""
    for c in range(means.shape[0]):
        for f in range(means.shape[1]):
            words = four_words(seed, _U0, _MEANS, HOP_SYNTHETIC, np.uint64(c), np.uint64(f // 4))
            means[c, f] = 1.0 if words[f % 4] & _U1 else -1.0


@cpu_kernel(parallel=True)
def fill_features(seed, first, y, means, signal, out):
    """Features of the nodes from ``first`` on: ``signal * means[y]`` plus nearly normal noise of variance 1, into ``out`` (N, F).

    The noise is the sum of the four bytes of a random word: no libm, and one Philox call for four features.
    """
    num_features = out.shape[1]
    for i in prange(out.shape[0]):
        v = np.uint64(first + i)
        label = y[first + i]
        for group in range((num_features + 3) // 4):
            words = four_words(seed, _U0, _NOISE, HOP_SYNTHETIC, v, np.uint64(group))
            for lane in range(min(4, num_features - 4 * group)):
                word = words[lane]
                total = (word & _BYTE) + ((word >> _U8) & _BYTE) + ((word >> _U16) & _BYTE) + (word >> _U24)
                noise = (np.float64(total) - _BYTES_MEAN) * _BYTES_SCALE
                out[i, 4 * group + lane] = signal * means[label, 4 * group + lane] + noise
