"""Rows of a feature table by node. A row is copied as words, so that any type is copied bit for bit.

Numba has no scalar of 16 bytes: the widest word is 8 bytes. A warp's 32 reads of 8 bytes side by side are still eight whole sectors.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel
from hoptrain.kernels.cuda.widths import id_kernel

WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)


def word_dtype(row_bytes):
    """The widest word that divides a row; rows begin at multiples of it."""
    return np.dtype(next(word for word in WORDS if row_bytes % np.dtype(word).itemsize == 0))


def gather(launch, source, ids, out):
    """``out[i] = rows[ids[i]]``.

    Args:
        launch: of one batch.
        source: (rows,) with rows (V, W) in device memory or pinned host memory; or (rows, parts, where) with some rows in device memory as
            well, a tuple of P arrays (C_p, W), none empty, which may lie on other devices, and where (V,) int32: the slot of a node, whose row is
            ``parts[slot % P][slot // P]``, or less than 0 if only ``rows`` has it.
        ids: (N,) node ids.
        out: (N, W) words.
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
    """See ``gather``. The x direction of a block goes along a row, y over rows."""
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
    """See ``gather``."""
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
    """Add to ``hits[0]`` how many of the ids have a slot. A thread adds once: few threads are to be launched."""
    own = 0
    for i in range(cuda.grid(1), len(ids), cuda.gridsize(1)):
        if where[ids[i]] >= 0:
            own += 1
    if own > 0:
        cuda.atomic.add(hits, 0, own)


@id_kernel("void(ID[::1], int32[::1])")
def count_ids(ids, counts):
    """Add 1 to ``counts[id]`` for each of the ids."""
    for i in range(cuda.grid(1), len(ids), cuda.gridsize(1)):
        cuda.atomic.add(counts, ids[i], 1)
