"""Gathering feature rows by node. A row is copied as unsigned words, so copies of any type are bit-identical.

Numba has no scalar of 16 bytes, so the widest word has 8 bytes. The 32 adjacent reads of 8 bytes of a warp are still eight whole sectors.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel
from hoptrain.kernels.cuda.widths import id_kernel

WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)


def word_dtype(row_bytes):
    """Return the dtype of the widest word whose size divides a row; rows must begin at multiples of this size."""
    return np.dtype(next(word for word in WORDS if row_bytes % np.dtype(word).itemsize == 0))


def gather(launch, source, ids, out):
    """Copy the row of node ``ids[i]`` to ``out[i]``.

    Args:
        launch: Launcher of one batch.
        source: Either (rows,), with rows (V, W) in device memory or pinned host memory; or (rows, parts, where), if some rows are also in device
            memory. ``parts`` is a tuple of P non-empty arrays (C_p, W), which may be on other devices. ``where`` (V,) int32 is the slot of a node,
            whose row is ``parts[slot % P][slot // P]``, or negative if the row is only in ``rows``.
        ids: (N,) node ids.
        out: (N, W) words, receives the rows.
    """
    block = launch.thresholds.block
    lanes = 1
    while lanes < min(out.shape[1], 32, block):
        lanes *= 2
    threads = lanes, block // lanes
    blocks = max(1, min(-(-len(ids) // threads[1]), launch.thresholds.max_blocks))
    kernel = gather_rows if len(source) == 1 else gather_placed
    kernel[(1, blocks), threads, launch.stream, 0](*source, ids, out)


@cuda_kernel(
    "void(uint64[:, ::1], int32[::1], uint64[:, ::1])",
    "void(uint32[:, ::1], int64[::1], uint32[:, ::1])",
    "void(uint16[:, ::1], int32[::1], uint16[:, ::1])",
    "void(uint8[:, ::1], int32[::1], uint8[:, ::1])",
)
def gather_rows(rows, ids, out):
    """Copy rows from a single array, see ``gather``. The x direction of a block goes along a row, y over rows."""
    _, start = cuda.grid(2)
    for i in range(start, len(ids), cuda.gridDim.y * cuda.blockDim.y):
        for word in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
            out[i, word] = rows[ids[i], word]


@cuda_kernel(
    "void(uint64[:, ::1], UniTuple(uint64[:, ::1], 1), int32[::1], int32[::1], uint64[:, ::1])",
    "void(uint64[:, ::1], UniTuple(uint64[:, ::1], 8), int32[::1], int64[::1], uint64[:, ::1])",
    "void(uint8[:, ::1], UniTuple(uint8[:, ::1], 2), int32[::1], int32[::1], uint8[:, ::1])",
)
def gather_placed(rows, parts, where, ids, out):
    """Copy rows from several arrays, see ``gather``. The x direction of a block goes along a row, y over rows."""
    _, start = cuda.grid(2)
    for i in range(start, len(ids), cuda.gridDim.y * cuda.blockDim.y):
        slot = where[ids[i]]
        if slot >= 0:
            part, row = parts[slot % len(parts)], slot // len(parts)
            for word in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
                out[i, word] = part[row, word]
        else:
            for word in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
                out[i, word] = rows[ids[i], word]


@id_kernel("void(int32[::1], ID[::1], int64[::1])")
def count_placed(where, ids, hits):
    """Add the number of ids with a slot to ``hits[0]``. Each thread makes one atomic addition, so launch few threads."""
    own = 0
    for i in range(cuda.grid(1), len(ids), cuda.gridsize(1)):
        if where[ids[i]] >= 0:
            own += 1
    if own > 0:
        cuda.atomic.add(hits, 0, own)


@id_kernel("void(ID[::1], int32[::1])")
def count_ids(ids, counts):
    """Increment ``counts[id]`` for each id."""
    for i in range(cuda.grid(1), len(ids), cuda.gridsize(1)):
        cuda.atomic.add(counts, ids[i], 1)
