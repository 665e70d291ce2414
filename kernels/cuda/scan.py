"""Exclusive scan of the rows of a matrix, in place: offsets from counts, ranks from flags.

Three launches: every tile of a row by itself, the sums of the tiles by one block a row, and the addition of both. A tile has as many items as
a block has threads. Where a row begins and ends is read from device memory.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.widths import id_kernel


def exclusive_scan(launch, rows, capacity, begin, end, base, sums, totals):
    """Turn ``rows[b, begin[b]:end[b]]`` into sums of what stands before each item, plus ``base[b]``.

    Args:
        launch: of the bulk.
        rows: (K, at least capacity+1) integers; the sum of all goes to ``rows[b, end[b]]``.
        capacity: the most items of a row.
        begin: (K,) int64.
        end: (K,) int64.
        base: (K,) int64.
        sums: (K, at least capacity / block, rounded up) int64 scratch.
        totals: (K,) int64, receives the sum of all as well; must not be ``base``, ``begin`` or ``end``.
    """
    shared_bytes = launch.thresholds.scan_bytes
    launch.rows(scan_tiles, capacity, rows, begin, end, sums, shared_bytes=shared_bytes)
    launch.one_block_each(scan_sums, begin, end, base, sums, totals, shared_bytes=shared_bytes)
    launch.rows(add_sums, capacity, rows, begin, end, sums, totals)


def scan_into_room(launch, rows, capacity, bounds, sums, needed, room, end, counters):
    """As ``exclusive_scan`` of counts that nothing bounds, where the host has made as much room as was enough so far.

    Args:
        launch: of the bulk.
        rows: as of ``exclusive_scan``.
        capacity: likewise.
        bounds: ``begin``, ``end`` and ``base`` of the scan, of which ``end`` is changed if there is too little room.
        sums: as of ``exclusive_scan``.
        needed: (K,) int64, receives the sums of all.
        room: the most that one may be.
        end: (K,) int64, receives them too; or ``base``, if one is more.
        counters: int64, see ``void_if_crowded``.
    """
    exclusive_scan(launch, rows, capacity, *bounds, sums, needed)
    low, high, base = bounds
    launch.flat(void_if_crowded, 1, needed, base, room, low, high, end, counters)


@device_function
def block_scan(buffer, value):
    """Sum of ``value`` over the threads up to this one (Hillis & Steele, CACM 1986). ``buffer`` has a place for each thread of the block."""
    thread = cuda.threadIdx.x
    buffer[thread] = value
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        before = buffer[thread - step] if thread >= step else np.int64(0)
        cuda.syncthreads()
        buffer[thread] += before
        cuda.syncthreads()
        step *= 2
    return buffer[thread]


@device_function
def num_tiles(begin, end):
    """Tiles of a row."""
    return (end - begin + cuda.blockDim.x - 1) // cuda.blockDim.x


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[:, ::1])")
def scan_tiles(rows, begin, end, sums):
    """Scan every tile by itself; its sum goes to ``sums``."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        i = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        value = np.int64(rows[b, i]) if i < end[b] else np.int64(0)
        total = block_scan(buffer, value)
        if i < end[b]:
            rows[b, i] = total - value
        if cuda.threadIdx.x == cuda.blockDim.x - 1:
            sums[b, tile] = total
        cuda.syncthreads()


@cuda_kernel("void(int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def scan_sums(begin, end, base, sums, totals):
    """Scan the sums of a row's tiles, by one block, from ``base`` on."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    tiles = num_tiles(begin[b], end[b])
    carry = base[b]
    for first in range(0, tiles, cuda.blockDim.x):
        tile = first + cuda.threadIdx.x
        value = sums[b, tile] if tile < tiles else np.int64(0)
        total = block_scan(buffer, value)
        if tile < tiles:
            sums[b, tile] = carry + total - value
        carry += buffer[cuda.blockDim.x - 1]
        cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        totals[b] = carry


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def add_sums(rows, begin, end, sums, totals):
    """Add to every item what stands before its tile."""
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        i = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        if i < end[b]:
            rows[b, i] += sums[b, tile]
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        rows[b, end[b]] = totals[b]


@cuda_kernel("void(int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1])")
def void_if_crowded(needed, base, room, low, high, end, counters):
    """``end`` becomes ``needed`` if all batches fit into ``room``; else the hop of the whole bulk becomes empty, and what follows with it.

    By one block. Then the bulk is worth nothing, and nothing is written beyond the room: the host reads ``needed`` and queues it again.

    Args:
        needed: (K,) where the hop's edges end.
        base: (K,) where they begin.
        room: the most that ``needed`` may be.
        low: (K,) the first request.
        high: (K,) the end of the requests, which becomes ``low``.
        end: (K,) receives ``needed``, or ``base``.
        counters: of requests that are grouped already, which become 0; or anything that is 0.
    """
    crowded = False
    for b in range(len(needed)):
        crowded = crowded or needed[b] > room
    for b in range(cuda.threadIdx.x, len(needed), cuda.blockDim.x):
        end[b] = base[b] if crowded else needed[b]
        if crowded:
            high[b] = low[b]
    for k in range(cuda.threadIdx.x, len(counters), cuda.blockDim.x):
        if crowded:
            counters[k] = 0
