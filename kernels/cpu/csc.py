"""Conversion of edge lists to compressed columns (CSC) by counting sort: O(V + E), stable, independent of the number of threads."""

import numpy as np
from numba import prange

from hoptrain.kernels.cpu import cpu_kernel


def coo_to_csc(src, dst, num_nodes, index_dtype):
    """Group edges by destination. Sources ascend within a column, and parallel edges keep their order.

    ``src`` and ``dst`` (E,) are node ids in [0, num_nodes), which is not checked. Returns ``indptr`` (V+1,) int64, ``indices`` (E,) of
    ``index_dtype``, and ``edge_ids`` (E,) int64, the position of each edge in the input. Two stable passes sort by source, then by destination.
    """
    by_source = np.empty(len(src), np.int64)
    _stable_order(src, np.arange(len(src), dtype=np.int64), num_nodes, by_source)
    edge_ids = np.empty(len(src), np.int64)
    indptr = _stable_order(dst, by_source, num_nodes, edge_ids)
    indices = src[edge_ids].astype(index_dtype, copy=False)
    return indptr, indices, edge_ids


@cpu_kernel
def _stable_order(keys, order, num_keys, out):
    """Write ``order`` sorted by ``keys[order]`` into ``out``, and return the offsets (num_keys+1,) of the keys."""
    offsets = np.zeros(num_keys + 1, np.int64)
    for i in range(len(order)):
        offsets[keys[order[i]] + 1] += 1
    for k in range(num_keys):
        offsets[k + 1] += offsets[k]
    cursor = offsets[:-1].copy()
    for i in range(len(order)):
        key = keys[order[i]]
        out[cursor[key]] = order[i]
        cursor[key] += 1
    return offsets


@cpu_kernel
def coo_into_csc(src, dst, indptr, indices):
    """Group edges by destination into arrays of the caller, which may be on disk. It allocates only V cursors.

    Fills ``indptr`` (V+1,) and ``indices`` (E,). The sources of a column keep the order of the input; ``sort_columns`` sorts them.
    """
    indptr[:] = 0
    for i in range(len(dst)):
        indptr[dst[i] + 1] += 1
    for v in range(len(indptr) - 1):
        indptr[v + 1] += indptr[v]
    cursor = indptr[:-1].copy()
    for i in range(len(dst)):
        indices[cursor[dst[i]]] = src[i]
        cursor[dst[i]] += 1


@cpu_kernel(parallel=True)
def sort_columns(indptr, indices):
    """Sort the sources within each column, in place."""
    for v in prange(len(indptr) - 1):
        indices[indptr[v] : indptr[v + 1]].sort()


@cpu_kernel
def columns_sorted(indptr, indices):
    """Return whether the sources ascend (not strictly) within every column."""
    for v in range(len(indptr) - 1):
        for j in range(indptr[v] + 1, indptr[v + 1]):
            if indices[j - 1] > indices[j]:
                return False
    return True


@cpu_kernel
def first_out_of_range(ids, limit):
    """Return the position of the first id outside [0, limit), or -1."""
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] >= limit:
            return i
    return -1
