"""Whole columns of a graph: how long they are, and copies of them."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch

_AHEAD = 16
_LINE = 16
_MOST_LINES = 8
"""Lines of a column that are asked for ahead; the processor fetches further ones by itself."""


@cpu_kernel
def total_degree(indptr, nodes, num):
    """How many edges enter the first ``num`` nodes together."""
    total = 0
    for i in range(num):
        prefetch(indptr, np.int64(nodes[min(i + 2 * _AHEAD, num - 1)]))
        vertex = np.int64(nodes[i])
        total += indptr[unsigned(vertex + 1)] - indptr[unsigned(vertex)]
    return total


@cpu_kernel
def copy_columns(indptr, indices, nodes, num, ends, out):
    """Copy the columns of the first ``num`` nodes one behind the other into ``out``; ``ends`` (num+1,) receives where they begin and end."""
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
