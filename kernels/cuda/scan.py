"""In-place exclusive scan of the rows of a matrix, which turns counts into offsets and flags into ranks.

A scan takes three launches: each tile of a row is scanned separately, one block for each row scans the sums of its tiles, and the two results are added. A tile
has as many items as a block has threads. The beginning and end of a row are read from device memory.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.widths import id_kernel


def exclusive_scan(launch, rows, capacity, begin, end, base, sums, totals):
    """Replace each item of ``rows[b, begin[b]:end[b]]`` by the sum of the items before it plus ``base[b]``.

    Args:
        launch: Launcher of the bulk.
        rows: (K, at least capacity+1) integers; the total goes to ``rows[b, end[b]]``.
        capacity: Maximum number of items of a row.
        begin: (K,) int64 first item of each row.
        end: (K,) int64 end of each row.
        base: (K,) int64 value added to each row.
        sums: (K, at least capacity / block, rounded up) int64 scratch memory.
        totals: (K,) int64, receives the totals, too; must not be ``base``, ``begin`` or ``end``.
    """
    shared_bytes = launch.thresholds.scan_bytes
    launch.rows(scan_tiles, capacity, rows, begin, end, sums, shared_bytes=shared_bytes)
    launch.one_block_each(scan_sums, begin, end, base, sums, totals, shared_bytes=shared_bytes)
    launch.rows(add_sums, capacity, rows, begin, end, sums, totals)


def scan_into_buffer(launch, rows, capacity, bounds, sums, needed, buffer_size, end, counters):
    """Scan counts as ``exclusive_scan`` does, for a buffer that may be too small. If so, the hop is made empty for the whole bulk.

    The host knows no upper bound of the totals, so it allocates a buffer that was large enough for the bulks so far.

    Args:
        launch: Launcher of the bulk.
        rows: (K, at least capacity+1) integers; the total goes to ``rows[b, end[b]]``.
        capacity: Maximum number of items of a row.
        bounds: Arrays ``begin``, ``end`` and ``base`` of the scan; ``end`` is changed if the buffer is too small.
        sums: (K, at least capacity / block, rounded up) int64 scratch memory.
        needed: (K,) int64, receives the totals.
        buffer_size: Capacity of the buffer, the maximum of a total.
        end: (K,) int64, receives the totals, or ``base`` if a total exceeds ``buffer_size``.
        counters: int64 counters of requests that are already grouped, see ``void_if_crowded``.
    """
    exclusive_scan(launch, rows, capacity, *bounds, sums, needed)
    low, high, base = bounds
    launch.flat(void_if_crowded, 1, needed, base, buffer_size, low, high, end, counters)


@device_function
def block_scan(buffer, value):
    """Return the sum of ``value`` over the threads up to this one (Hillis & Steele, CACM 1986). ``buffer`` has an entry for each thread of the block."""
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
    """Return the number of tiles of a row."""
    return (end - begin + cuda.blockDim.x - 1) // cuda.blockDim.x


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[:, ::1])")
def scan_tiles(rows, begin, end, sums):
    """Scan every tile separately, and write its total to ``sums``."""
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
    """Scan the totals of a row's tiles by one block, starting from ``base``."""
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
    """Add the total of the preceding tiles to every item."""
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        i = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        if i < end[b]:
            rows[b, i] += sums[b, tile]
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        rows[b, end[b]] = totals[b]


@cuda_kernel("void(int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1])")
def void_if_crowded(needed, base, buffer_size, low, high, end, counters):
    """Set ``end`` to ``needed`` if all batches fit into ``buffer_size``; otherwise make this and all later hops of the bulk empty.

    It is launched with one block. If they do not fit, the results of the bulk are wrong, but nothing is written beyond the buffers: the host reads
    ``needed``, enlarges the buffers and queues the bulk again.

    Args:
        needed: (K,) end of the hop's edges.
        base: (K,) beginning of the hop's edges.
        buffer_size: Capacity of the buffer, the maximum of ``needed``.
        low: (K,) first request.
        high: (K,) end of the requests; set to ``low`` if a batch does not fit.
        end: (K,), receives ``needed``, or ``base`` if a batch does not fit.
        counters: Counters of requests that are already grouped, set to 0 if a batch does not fit; or any array of zeros.
    """
    crowded = False
    for b in range(len(needed)):
        crowded = crowded or needed[b] > buffer_size
    for b in range(cuda.threadIdx.x, len(needed), cuda.blockDim.x):
        end[b] = base[b] if crowded else needed[b]
        if crowded:
            high[b] = low[b]
    for k in range(cuda.threadIdx.x, len(counters), cuda.blockDim.x):
        if crowded:
            counters[k] = 0
