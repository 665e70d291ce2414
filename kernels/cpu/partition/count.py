"""Kernels that count the expected requests for each node, and the edges between labels."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

ONE = 1 << 16
"""Fixed-point number that represents one request."""


@cpu_kernel
def count_requests(indptr, indices, fanout, out):
    """Add the expected number of requests for each node if every node draws its in-neighbours once: min(1, fanout / in-degree) for each edge.

    Args:
        indptr: (V+1,) offsets of the columns.
        indices: (E,) sources.
        fanout: Number of edges that a node draws.
        out: (V,) int64 in units of 1 / ``ONE``, to which the expected numbers of requests are added.
    """
    for v in range(len(out)):
        begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        if begin == end:
            continue
        chance = min(end - begin, fanout) * ONE // (end - begin)
        for e in range(begin, end):
            out[indices[e]] += chance


@cpu_kernel
def list_pairs(indptr, indices, edge_sizes, labels, num_labels, first, last, keys, counts):
    """List the pairs of different labels that the edges of the columns [first, last) join.

    Args:
        indptr: (V+1,) offsets of the columns.
        indices: (E,) sources.
        edge_sizes: (E,) number of original edges that each edge stands for; (0,) if every edge stands for one.
        labels: (V,) labels in [0, num_labels).
        num_labels: Number of labels.
        first: First column to process.
        last: Column after the last column to process.
        keys: (M,) int64, receives a key for each pair: smaller label * ``num_labels`` + larger label. M is at least the number of these edges.
        counts: (M,) int64, receives the number of edges of each pair.

    Returns:
        The number of pairs. Edges within a label are skipped.
    """
    number = 0
    for v in range(first, last):
        for e in range(np.int64(indptr[v]), np.int64(indptr[v + 1])):
            a, b = np.int64(labels[v]), np.int64(labels[indices[e]])
            if a != b:
                keys[number] = min(a, b) * num_labels + max(a, b)
                counts[number] = edge_sizes[e] if len(edge_sizes) else 1
                number += 1
    return number
