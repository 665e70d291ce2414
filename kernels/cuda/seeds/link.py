"""Removal of seed edges from sampled blocks: the remaining edges are counted, then compacted.

Shapes: K batches with a row of every matrix each. An edge has the code ``source * num_seeds + destination`` of local ids of seeds, which are the first
nodes. The codes in a batch's ``dropped`` ascend.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.widths import id_kernel


@device_function
def is_dropped(dropped, num_dropped, b, source, destination, num_seeds):
    """Return whether an edge is among the first ``num_dropped`` entries of row ``b``."""
    if source >= num_seeds or destination >= num_seeds:
        return False
    value = source * num_seeds + destination
    first, last = np.int64(0), np.int64(num_dropped)
    while first < last:
        middle = (first + last) >> 1
        if dropped[b, middle] < value:
            first = middle + 1
        else:
            last = middle
    return first < num_dropped and dropped[b, first] == value


@id_kernel("void(ID[:, ::1], ID[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], ID[:, ::1])")
def count_left(indptr, indices, num_dst, num_seeds, dropped, num_dropped, counts):
    """Write the number of remaining edges of each of ``num_dst[b]`` destinations to ``counts``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, num_dst[b], cuda.gridDim.x * cuda.blockDim.x):
        left = np.int64(0)
        for e in range(indptr[b, i], indptr[b, i + 1]):
            if not is_dropped(dropped, num_dropped[b], b, np.int64(indices[b, e]), np.int64(i), num_seeds[b]):
                left += 1
        counts[b, i] = left


@id_kernel(
    "void(ID[:, ::1], ID[:, ::1], ID[:, ::1], uint32[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int64, ID[:, ::1], "
    "ID[:, ::1], ID[:, ::1], uint32[:, ::1])"
)
def move_left(
    indptr,
    edge_ids,
    indices,
    weights,
    num_dst,
    num_seeds,
    dropped,
    num_dropped,
    has_weights,
    out_indptr,
    out_edges,
    out_indices,
    out_weights,
):
    """Copy the remaining edges, and their weights if there are any, to the output."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, num_dst[b], cuda.gridDim.x * cuda.blockDim.x):
        place = np.int64(out_indptr[b, i])
        for e in range(indptr[b, i], indptr[b, i + 1]):
            if not is_dropped(dropped, num_dropped[b], b, np.int64(indices[b, e]), np.int64(i), num_seeds[b]):
                out_edges[b, place] = edge_ids[b, e]
                out_indices[b, place] = indices[b, e]
                if has_weights:
                    out_weights[b, place] = weights[b, e]
                place += 1


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1])")
def read_ends(indptr, num_dst, num_edges):
    """Write the number of edges of the first ``num_dst[b]`` destinations to ``num_edges``, by one block for each batch."""
    b = cuda.blockIdx.y
    if cuda.threadIdx.x == 0:
        num_edges[b] = indptr[b, num_dst[b]]
