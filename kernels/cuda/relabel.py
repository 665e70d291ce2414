"""Local ids in order of first appearance: a hash table a batch, where every node keeps the smallest value that asked for it.

A node that is known has its local id as value; one that is not asks with ``known`` + the place of its edge, ``known`` being above all local
ids. So the edge that finds its own place in the table is the first one to its node, and the rank of such an edge among them gives the new
local id. Entries of earlier hops stay. The table is open addressing with linear probing; its rows hold a power of two of entries, twice what
they will hold at most.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.scan import block_scan, exclusive_scan
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared import shared

_EMPTY = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_B32 = np.uint64(32)


def clear_table(launch, keys, values):
    """Empty the tables: ``keys`` (K, S), of the type of node ids, and ``values`` (K, S), S a power of two."""
    launch.rows(fill_rows, keys.shape[1], keys, _EMPTY)
    launch.rows(fill_rows, keys.shape[1], values, np.iinfo(values.dtype).max)


def relabel(launch, neighbors, nodes, capacity, begin, end, known, table, scratch, num_before, num_after):
    """Turn the nodes ``neighbors[b, begin[b]:end[b]]`` into local ids, in place, and append new ones to ``nodes``.

    Args:
        launch: of the bulk.
        neighbors: (K, M) nodes in, local ids out.
        nodes: (K, N) nodes by local id, with room for the new ones.
        capacity: the most edges of a batch.
        begin: (K,) int64.
        end: (K,) int64.
        known: not below any local id that there is or will be; ``known`` + M fits into ``values``.
        table: keys and values, holding the known nodes.
        scratch: slots (K, M) int32 or int64, and ranks (K, M+1) int32 or int64, and the scan's sums.
        num_before: (K,) int64 known nodes.
        num_after: (K,) int64, written.
    """
    keys, values = table
    slots, ranks, sums = scratch
    launch.rows(insert_edges, capacity, neighbors, begin, end, known, keys, values, slots)
    launch.rows(mark_first, capacity, begin, end, known, values, slots, ranks)
    exclusive_scan(launch, ranks, capacity, begin, end, num_before, sums, num_after)
    launch.rows(append_new, capacity, neighbors, begin, end, slots, ranks, values, nodes)
    launch.rows(look_up, capacity, begin, end, values, slots, neighbors)


@shared
def hash_of(vertex):
    """32 bits that look random (Knuth's multiplicative hashing, TAOCP 3, 6.4)."""
    return np.int64((np.uint64(vertex) * _GOLDEN) >> _B32)


@device_function
def find_slot(keys, b, vertex):
    """The place of a node in row ``b``, taken for it if it had none. The row must have an empty place left, or hold the node."""
    mask = keys.shape[1] - 1
    slot = hash_of(vertex) & mask
    while True:
        key = keys[b, slot]
        if key == _EMPTY:
            key = cuda.atomic.cas(keys, (b, slot), _EMPTY, vertex)
        if key == _EMPTY or key == vertex:  # noqa: SIM109 - Numba has no tuple of two types here
            return slot
        slot = (slot + 1) & mask


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def enter_nodes(source, count, keys, values, nodes):
    """Enter ``source[b, :count[b]]`` with their places as local ids, and copy them to ``nodes``, which may be the same array."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = source[b, i]
        nodes[b, i] = vertex
        cuda.atomic.min(values, (b, find_slot(keys, b, vertex)), i)


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], int64[::1])")
def find_repeated(nodes, count, keys, values, repeated):
    """Lower ``repeated[b]`` to the first place whose node stands before it as well. ``enter_nodes`` has run."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        if values[b, find_slot(keys, b, nodes[b, i])] != i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def insert_edges(neighbors, begin, end, known, keys, values, slots):
    """Let every edge ask for its node, and note the node's place in the table."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = find_slot(keys, b, neighbors[b, e])
        slots[b, e] = slot
        if values[b, slot] > known + e:  # an old value read here is a larger one: it costs an atomic and changes nothing
            cuda.atomic.min(values, (b, slot), known + e)


@id_kernel("void(int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def mark_first(begin, end, known, values, slots, flags):
    """1 for the edges whose own value won, else 0."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        flags[b, e] = 1 if values[b, slots[b, e]] == known + e else 0


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def append_new(neighbors, begin, end, slots, ranks, values, nodes):
    """Give new nodes their local ids: those at which ``ranks``, the scan of the flags, rises."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        local = ranks[b, e]
        if ranks[b, e + 1] > local:
            nodes[b, local] = neighbors[b, e]
            values[b, slots[b, e]] = local


@id_kernel("void(int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def look_up(begin, end, values, slots, local):
    """The local id of every edge's source."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        local[b, e] = values[b, slots[b, e]]


@device_function
def enter_tile(values, row, slot, vertex, known, seen, num_seen, buffer):
    """Number the nodes of a tile, one for each thread of the block, that have none yet: for searches whose steps depend on each other.

    Args:
        values: numbers, by row and slot; those of nodes without a number are ``known`` + a block's threads, or above.
        row: of the block.
        slot: of the thread's node, the same for the same node; negative if it has none.
        vertex: of the thread.
        known: above all numbers that there will be.
        seen: nodes by row and number, new ones are appended.
        num_seen: of the row.
        buffer: shared scratch, an int64 for each thread.

    Returns:
        The number of the thread's node, and how many nodes were new; all threads know the numbers afterwards.
    """
    mine = known + cuda.threadIdx.x
    if slot >= 0:
        cuda.atomic.min(values, (row, slot), mine)
    cuda.syncthreads()
    is_new = slot >= 0 and values[row, slot] == mine
    rank = block_scan(buffer, 1 if is_new else 0)
    num_new = buffer[cuda.blockDim.x - 1]
    if is_new:
        seen[row, num_seen + rank - 1] = vertex
        values[row, slot] = num_seen + rank - 1
    cuda.syncthreads()
    number = values[row, slot] if slot >= 0 else -1
    return number, num_new
