"""Random graphs with communities and power-law degrees. Every edge and every feature is a pure function of its index.

Nodes have a rank (0 is the most popular) and an id; ``rank % num_classes`` is the community, and an affine bijection maps ranks to ids.
Edges come in pairs, one for each direction. No edge list is stored: ``count_edges`` and ``place_edges``, the two passes that build the compressed
columns, generate the same pairs twice. Edges depend only on +, -, * and / of doubles, which IEEE 754 rounds the same on every machine.
"""

import numpy as np
from numba import prange

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import HOP_SYNTHETIC, four_words

_EDGES = np.uint64(0)
_NOISE = np.uint64(1)
_MEANS = np.uint64(2)
"""Values of the batch field of the Philox counter for edges, noise and means, so that they share no random words."""

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
    """Return a rank drawn with probability ~ (rank + num_nodes * start**3) ** (-2/3). Degrees then follow a power law with exponent 2.5."""
    u = start + (1.0 - start) * (np.float64(word) * _UNIT)
    floor = start * start * start
    rank = np.int64(num_nodes * ((u * u * u - floor) / (1.0 - floor)))
    return min(rank, num_nodes - 1)


@cpu_kernel
def relation_pair(pair, seed, num_src, num_dst, num_classes, start_src, start_dst, inside):
    """Return the ranks of a source and a destination. With probability ``inside / 2**32`` the destination is moved to the community of the source.

    If a type has fewer nodes than there are classes, a node stands for several communities.
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
    """Return two different ranks to join, as ``relation_pair`` does within one type; each class has at least two nodes."""
    first, second = relation_pair(pair, seed, num_nodes, num_nodes, num_classes, start, start, inside)
    if second == first:  # no self loops: take the next node of the same community
        second = first + num_classes if first + num_classes < num_nodes else first - num_classes
    return first, second


@cpu_kernel
def vertex_id(rank, num_nodes, factor, shift):
    """Return the id of a rank. ``factor`` and ``num_nodes`` are coprime, and their product is below 2**63."""
    return (factor * rank + shift) % num_nodes


@cpu_kernel(parallel=True)
def count_edges(seed, num_pairs, num_classes, start, inside, factor, shift, counts):
    """Count the in-edges of each node in ``counts`` (parts, V), which is zero before. Each thread counts its part of the pairs in its own row."""
    parts, num_nodes = counts.shape
    for part in prange(parts):
        for pair in range(part * num_pairs // parts, (part + 1) * num_pairs // parts):
            first, second = edge_pair(pair, seed, num_nodes, num_classes, start, inside)
            counts[part, vertex_id(first, num_nodes, factor, shift)] += 1
            counts[part, vertex_id(second, num_nodes, factor, shift)] += 1


@cpu_kernel
def counts_to_cursors(counts, indptr):
    """Replace ``counts`` by the position where each part begins to write in a column, and fill ``indptr`` (V+1,)."""
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
    """Write every edge into its column. The order depends on the number of parts, so sort the columns afterwards."""
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
    """Fill ``src`` and ``dst`` (E,) with the edges of a relation.

    ``starts``, ``sizes``, ``factors`` and ``shifts`` have an entry for the source type and one for the destination type. ``is_within`` tells that
    both are the same type.
    """
    for pair in prange(len(src)):
        if is_within:
            first, second = edge_pair(pair, seed, sizes[0], num_classes, starts[0], inside)
        else:
            first, second = relation_pair(pair, seed, sizes[0], sizes[1], num_classes, starts[0], starts[1], inside)
        src[pair] = vertex_id(first, sizes[0], factors[0], shifts[0])
        dst[pair] = vertex_id(second, sizes[1], factors[1], shifts[1])


@cpu_kernel(parallel=True)
def fill_labels(num_classes, factor, shift, y):
    """Fill ``y`` (V,) with the community of every node."""
    for rank in prange(len(y)):
        y[vertex_id(rank, len(y), factor, shift)] = rank % num_classes


@cpu_kernel
def class_means(seed, means):
    """Fill ``means`` (C, F) with random signs, +1 and -1."""
    for c in range(means.shape[0]):
        for f in range(means.shape[1]):
            words = four_words(seed, _U0, _MEANS, HOP_SYNTHETIC, np.uint64(c), np.uint64(f // 4))
            means[c, f] = 1.0 if words[f % 4] & _U1 else -1.0


@cpu_kernel(parallel=True)
def fill_features(seed, first, y, means, signal, out):
    """Fill ``out`` (N, F) with features of the nodes from ``first`` on: ``signal * means[y]`` plus nearly normal noise of variance 1.

    The noise is the scaled sum of the four bytes of a random word. This needs no libm, and only one Philox call per four features.
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
