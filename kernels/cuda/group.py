"""Requests grouped by transit, the node that they sample, and transits classed by their work.

No sort: a request counts itself at its node, and the count before it is its rank in the group; then every transit claims a range for its
group; then every request enters itself at its rank. Ranks and ranges come in any order, which nothing depends on, since a request owns its
places in the output. The tables over all nodes are cleared where they were touched.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, int32, int64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.draw import column, num_units
from hoptrain.kernels.cuda.widths import id_kernel

# What ``counters`` counts: transits, requests that entered a group, and the transits of each class.
TRANSITS = 0
MEMBERS = 1
CLASSES = 2
NUM_CLASSES = 4
NUM_COUNTERS = CLASSES + NUM_CLASSES
HELD_BYTES = (8 + 4) * NUM_COUNTERS
"""Shared memory of ``block_claim``: where a block's places begin, then its sums. The launch provides it: of a fixed array the simulator may make
two, if threads ask at the same time."""

THREAD = 0
WARP = 1
BLOCK = 2
GRID = 3

ROW_BITS = np.int64(40)  # rows are below the number of nodes, which is at most 2**40
_ROW_MASK = np.int64((1 << 40) - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Device arrays of the grouping, for V nodes, R requests and T transits at most.

    Attributes:
        counters: (NUM_COUNTERS,) int64.
        group_size: (V,) int32, all zero between two groupings.
        transit_of: (V,) int32, the place of a node in ``transits``; undefined for one that is none.
        transits: (T,) nodes, in any order.
        sizes: (T,) int32, requests of each transit.
        starts: (T,) int64, where its group begins in ``members``.
        classes: (NUM_CLASSES, T) int32, the places of each class's transits.
        ranks: (K, N) int32, a request's rank in its group, by batch and row.
        members: (R,) int64, requests by group, see ``pack_request``.
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
    """A request as one number: its batch and its row in ``nodes``."""
    return (np.int64(b) << ROW_BITS) | np.int64(row)


@device_function
def unpack_request(member):
    """Batch and row of a request."""
    return member >> ROW_BITS, member & _ROW_MASK


@device_function
def block_claim(held, counters, kind, amount):
    """Claim ``amount`` places after those that ``counters[kind]`` has given out; returns the first.

    All threads of a block take part, those that need nothing with an amount of 0. They add up in shared memory, so that a block makes one
    atomic a counter in device memory, where all blocks meet. ``held`` is shared scratch (NUM_COUNTERS,) int64, and what follows it. A sum
    has 32 bits, since an atomic on 64 bits of shared memory is a loop: it is at most a bulk's requests, of which ``members`` has 8 bytes each.
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
    """The class of a transit with ``work`` units."""
    if work <= thread_work:
        return THREAD
    if work <= warp_work:
        return WARP
    return BLOCK if work <= block_work else GRID


@cuda_kernel("void(int64[::1])", "void(int32[::1])")
def clear(counts):
    """Set all to zero."""
    k = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(k, len(counts), cuda.gridDim.x * cuda.blockDim.x):
        counts[i] = 0


@id_kernel(
    "void(ID[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, int32[::1], int32[:, ::1], ID[::1], int32[::1], int64[::1])"
)
def count_requests(indptr, alias, nodes, low, high, fanout, mode, group_size, ranks, transits, transit_of, counters):
    """Rank every request that gives an edge, and list its node if it is the first one there."""
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
    """Give every transit its range of ``members`` and its class, and clear its count."""
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
    """Write every request that gives an edge to its place in its group."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = nodes[b, i]
        _, degree = column(indptr, alias, mode, vertex)
        if num_units(degree, fanout, mode) > 0:
            members[starts[transit_of[vertex]] + ranks[b, i]] = pack_request(b, i)


# Which request a unit of work belongs to, in both schedules. By sample a kernel is launched by rows, and a batch's blocks take its requests;
# by transit it is launched flat, and takes ``members``, so that neighbouring threads read the same column.


@device_function
def num_requests(b, low, high, grouped, counters):
    """How many requests there are: in batch ``b``, or in all where they are grouped."""
    return counters[MEMBERS] if grouped else high[b] - low[b]


@device_function
def request_at(k, b, low, grouped, members):
    """Batch and row of request ``k``."""
    if grouped:
        return unpack_request(members[k])
    return np.int64(b), low[b] + k
