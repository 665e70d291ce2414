"""Expected requests of nodes, and the edges between labels."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

ONE = 1 << 16
"""A request that is certain."""


@cpu_kernel
def count_requests(indptr, indices, fanout, out):
    """Add to each node how often its out-neighbours are expected to draw it, each of them once: min(1, fanout / in-degree) an edge.

    Args:
        indptr: (V+1,) of the columns.
        indices: (E,) sources.
        fanout: edges that a node draws.
        out: (V,) int64, in parts of ``ONE``; added to.
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
    """The pairs of labels that the edges of columns ``first`` to ``last``, without it, join: the smaller times ``num_labels`` plus the larger.

    Args:
        indptr: (V+1,) of the columns.
        indices: (E,) sources.
        edge_sizes: (E,) integers, or (0,) where each edge is one.
        labels: (V,) in [0, num_labels).
        num_labels: L.
        first: the first column.
        last: behind the last one.
        keys: (M,) int64, with room for all edges of these columns.
        counts: (M,) int64, the edges of each pair.

    Returns:
        How many pairs there are. Edges within a label are none.
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
