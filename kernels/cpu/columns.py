"""Total length of columns of a graph, and copies of whole columns."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch

_AHEAD = 16
_LINE = 16
_MOST_LINES = 8
"""Maximum number of cache lines of a column that the code prefetches. The processor's own prefetcher fetches further lines."""


@cpu_kernel
def total_degree(indptr, nodes, num):
    """Return the total in-degree of the first ``num`` nodes."""
    total = 0
    for i in range(num):
        prefetch(indptr, np.int64(nodes[min(i + 2 * _AHEAD, num - 1)]))
        vertex = np.int64(nodes[i])
        total += indptr[unsigned(vertex + 1)] - indptr[unsigned(vertex)]
    return total


@cpu_kernel
def copy_columns(indptr, indices, nodes, num, ends, out):
    """Copy the columns of the first ``num`` nodes one after another into ``out``; ``ends`` (num+1,) receives their offsets."""
    edges = 0
    ends[0] = 0
    for i in range(num):
        prefetch(indptr, np.int64(nodes[min(i + 2 * _AHEAD, num - 1)]))
        ahead = indptr[nodes[min(i + _AHEAD, num - 1)]]
        for line in range(_MOST_LINES):
            prefetch(indices, ahead + line * _LINE)
        for position in places(indptr[nodes[i]], indptr[nodes[i] + 1]):
            out[unsigned(edges)] = indices[position]
            edges += 1
        ends[i + 1] = edges
