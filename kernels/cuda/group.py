"""Grouping of requests by their *transit*, the node whose neighbours are drawn, and classification of transits by their amount of work.

There is no sort. Each request increments the count of its node, and the previous count is its rank in the group. Then every transit claims a range for
its group, and every request enters itself at its rank. Ranks and ranges have a random order, on which nothing depends, since each request owns a
range of the output. Tables over all nodes are cleared only where they were used.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, int32, int64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.draw import column, num_units
from hoptrain.kernels.cuda.widths import id_kernel

# Indices of ``counters``: the number of transits, of grouped requests, and of transits of each class.
TRANSITS = 0
MEMBERS = 1
CLASSES = 2
NUM_CLASSES = 4
NUM_COUNTERS = CLASSES + NUM_CLASSES
HELD_BYTES = (8 + 4) * NUM_COUNTERS
"""Size in bytes of the shared memory that ``block_claim`` needs: the beginnings of a block's ranges, then the block's sums.

The launch provides the memory, since the simulator may create a fixed array twice if threads request it at the same time.
"""

THREAD = 0
WARP = 1
BLOCK = 2
GRID = 3

ROW_BITS = np.int64(40)  # rows are below the number of nodes, which is at most 2**40
_ROW_MASK = np.int64((1 << 40) - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The device arrays of the grouping, for V nodes and at most R requests and T transits.

    Attributes:
        counters: (NUM_COUNTERS,) int64 counters.
        group_size: (V,) int32 number of requests of each node; all zero between two groupings.
        transit_of: (V,) int32 index of a node in ``transits``; undefined for nodes without requests.
        transits: (T,) global ids of the transits, in any order.
        sizes: (T,) int32 number of requests of each transit.
        starts: (T,) int64 beginning of each transit's group in ``members``.
        classes: (NUM_CLASSES, T) int32 indices of the transits of each class.
        ranks: (K, N) int32 rank of each request in its group, by batch and row.
        members: (R,) int64 requests by group, see ``pack_request``.
    """

    counters: Any
    group_size: Any
    transit_of: Any
    transits: Any
    sizes: Any
    starts: Any
    classes: Any
    ranks: Any
    members: Any


def group_requests(launch, graph, requests, capacity, draw, groups):
    """Fill ``groups``; the arguments are those of ``sample_parallel.draw_by_sample``."""
    indptr, _, _, alias = graph
    fanout, mode = draw[:2]
    table = launch.thresholds
    borders = table.thread_work, table.warp_work, table.block_work
    launch.flat(clear, NUM_COUNTERS, groups.counters)
    launch.rows(
        count_requests, capacity, indptr, alias, *requests, fanout, mode,
        groups.group_size, groups.ranks, groups.transits, groups.transit_of, groups.counters, shared_bytes=HELD_BYTES,
    )  # fmt: skip
    launch.flat(
        claim_groups, len(groups.transits), indptr, alias, fanout, mode, groups.group_size, groups.transits, *borders,
        groups.counters, groups.sizes, groups.starts, groups.classes, shared_bytes=HELD_BYTES,
    )  # fmt: skip
    launch.rows(
        enter_groups, capacity, indptr, alias, *requests, fanout, mode,
        groups.ranks, groups.transit_of, groups.starts, groups.members,
    )  # fmt: skip


@device_function
def pack_request(b, row):
    """Return a request as one integer that holds its batch and its row in ``nodes``."""
    return (np.int64(b) << ROW_BITS) | np.int64(row)


@device_function
def unpack_request(member):
    """Return the batch and row of a request."""
    return member >> ROW_BITS, member & _ROW_MASK


@device_function
def block_claim(held, counters, kind, amount):
    """Claim ``amount`` consecutive indices from ``counters[kind]``, and return the first one.

    All threads of a block must call this function, with an amount of 0 if they need no index. Amounts are summed in shared memory, so that a block makes only
    one atomic operation per counter in device memory, which all blocks share. ``held`` is shared scratch memory: begins (NUM_COUNTERS,) int64 and sums int32.
    Sums have 32 bits because a 64-bit atomic on shared memory is a loop; they are at most the number of requests of a bulk, which fits.
    """
    begins, sums = held
    for k in range(cuda.threadIdx.x, NUM_COUNTERS, cuda.blockDim.x):
        sums[k] = 0
    cuda.syncthreads()
    before = np.int32(0)
    if amount > 0:
        before = cuda.atomic.add(sums, kind, np.int32(amount))
    cuda.syncthreads()
    for k in range(cuda.threadIdx.x, NUM_COUNTERS, cuda.blockDim.x):
        if sums[k] > 0:
            begins[k] = cuda.atomic.add(counters, k, np.int64(sums[k]))
    cuda.syncthreads()
    start = begins[kind] + before if amount > 0 else np.int64(0)
    cuda.syncthreads()
    return start


@device_function
def class_of(work, thread_work, warp_work, block_work):
    """Return the class of a transit node with ``work`` units."""
    if work <= thread_work:
        return THREAD
    if work <= warp_work:
        return WARP
    return BLOCK if work <= block_work else GRID


@cuda_kernel("void(int64[::1])", "void(int32[::1])")
def clear(counts):
    """Set all entries to zero."""
    k = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(k, len(counts), cuda.gridDim.x * cuda.blockDim.x):
        counts[i] = 0


@id_kernel(
    "void(ID[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, int32[::1], int32[:, ::1], ID[::1], int32[::1], int64[::1])"
)
def count_requests(indptr, alias, nodes, low, high, fanout, mode, group_size, ranks, transits, transit_of, counters):
    """Write the rank of every request that draws an edge, and list its node as a transit if the rank is 0."""
    held = cuda.shared.array(0, int64), cuda.shared.array(0, int32)[2 * NUM_COUNTERS :]
    b = cuda.blockIdx.y
    for first in range(low[b] + cuda.blockIdx.x * cuda.blockDim.x, high[b], cuda.gridDim.x * cuda.blockDim.x):
        i = first + cuda.threadIdx.x
        is_new = 0
        if i < high[b]:
            _, degree = column(indptr, alias, mode, nodes[b, i])
            if num_units(degree, fanout, mode) > 0:
                rank = cuda.atomic.add(group_size, nodes[b, i], 1)
                ranks[b, i] = rank
                is_new = 1 if rank == 0 else 0
        place = block_claim(held, counters, TRANSITS, is_new)
        if is_new:
            transits[place] = nodes[b, i]
            transit_of[nodes[b, i]] = place


@id_kernel(
    "void(ID[::1], int32[::1], int64, int64, int32[::1], ID[::1], int64, int64, int64, int64[::1], int32[::1], int64[::1], int32[:, ::1])"
)
def claim_groups(
    indptr, alias, fanout, mode, group_size, transits, thread_work, warp_work, block_work, counters, sizes, starts, classes
):  # fmt: skip
    """Claim a range of ``members`` for every transit, classify it, and clear its count."""
    held = cuda.shared.array(0, int64), cuda.shared.array(0, int32)[2 * NUM_COUNTERS :]
    num_transits = counters[TRANSITS]
    for first in range(cuda.blockIdx.x * cuda.blockDim.x, num_transits, cuda.gridDim.x * cuda.blockDim.x):
        t = first + cuda.threadIdx.x
        size, kind = np.int64(0), THREAD
        if t < num_transits:
            vertex = transits[t]
            size = np.int64(group_size[vertex])
            group_size[vertex] = 0
            _, degree = column(indptr, alias, mode, vertex)
            kind = class_of(size * num_units(degree, fanout, mode), thread_work, warp_work, block_work)
        start = block_claim(held, counters, MEMBERS, size)
        place = block_claim(held, counters, CLASSES + kind, 1 if size > 0 else 0)
        if t < num_transits:
            sizes[t] = size
            starts[t] = start
            classes[kind, place] = t


@id_kernel("void(ID[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, int32[:, ::1], int32[::1], int64[::1], int64[::1])")
def enter_groups(indptr, alias, nodes, low, high, fanout, mode, ranks, transit_of, starts, members):
    """Write every request that draws an edge into its group in ``members``, at its rank."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = nodes[b, i]
        _, degree = column(indptr, alias, mode, vertex)
        if num_units(degree, fanout, mode) > 0:
            members[starts[transit_of[vertex]] + ranks[b, i]] = pack_request(b, i)


# The functions below map units of work to requests in both schedules. By sample, a kernel is launched by ``Launch.rows``, and the blocks of a batch process
# its requests. By transit, it is launched by ``Launch.flat`` and processes ``members``, so that adjacent threads read the same column.


@device_function
def num_requests(b, low, high, grouped, counters):
    """Return the number of requests: of batch ``b``, or of all batches if they are grouped."""
    return counters[MEMBERS] if grouped else high[b] - low[b]


@device_function
def request_at(k, b, low, grouped, members):
    """Return the batch and row of request ``k``."""
    if grouped:
        return unpack_request(members[k])
    return np.int64(b), low[b] + k
