"""Relabelling to local ids in order of first appearance, by a hash table for each batch. An entry keeps the smallest value proposed for its node.

The value of a known node is its local id. For a new node every edge proposes ``known`` + its position, where ``known`` is above all local ids. So an
edge that finds its own position in the table is the first one of its node, and its rank among such edges gives the new local id. Entries of
earlier hops are kept. The table uses open addressing with linear probing. The number of entries of a row is a power of two, at least twice the
maximum number of nodes.
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
    """Empty the tables ``keys`` (K, S), of the type of node ids, and ``values`` (K, S); S is a power of two."""
    launch.rows(fill_rows, keys.shape[1], keys, _EMPTY)
    launch.rows(fill_rows, keys.shape[1], values, np.iinfo(values.dtype).max)


def relabel(launch, neighbors, nodes, capacity, begin, end, known, table, scratch, num_before, num_after):
    """Replace the global ids ``neighbors[b, begin[b]:end[b]]`` by local ids, in place, and append new nodes to ``nodes``.

    Args:
        launch: Launcher of the bulk.
        neighbors: (K, M) global ids, replaced by local ids.
        nodes: (K, N) global ids by local id, with capacity for the new nodes.
        capacity: Maximum number of edges of a batch.
        begin: (K,) int64 first edge of each batch.
        end: (K,) int64 end of each batch's edges.
        known: Upper bound of all local ids, also of the new nodes; ``known`` + M fits into the type of ``values``.
        table: Keys and values that hold the known nodes.
        scratch: Scratch memory: slots (K, M) and ranks (K, M+1), int32 or int64, and the scan's sums.
        num_before: (K,) int64 number of known nodes.
        num_after: (K,) int64, receives the number of nodes after the call.
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
    """Return a hash of 32 bits (Knuth's multiplicative hashing, TAOCP 3, 6.4)."""
    return np.int64((np.uint64(vertex) * _GOLDEN) >> _B32)


@device_function
def find_slot(keys, b, vertex):
    """Return the slot of a node in row ``b``; if the node has no slot, a free one is claimed. The row must have a free slot, or contain the node."""
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
    """Enter the nodes ``source[b, :count[b]]`` with their positions as local ids, and copy them to ``nodes``, which may be the same array."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = source[b, i]
        nodes[b, i] = vertex
        cuda.atomic.min(values, (b, find_slot(keys, b, vertex)), i)


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], int64[::1])")
def find_repeated(nodes, count, keys, values, repeated):
    """Lower ``repeated[b]`` to the position of the first repeated node of batch ``b``. Run ``enter_nodes`` first."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        if values[b, find_slot(keys, b, nodes[b, i])] != i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def insert_edges(neighbors, begin, end, known, keys, values, slots):
    """Propose a value for the source of every edge, and store its slot in ``slots``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = find_slot(keys, b, neighbors[b, e])
        slots[b, e] = slot
        if values[b, slot] > known + e:  # a stale read is too large, so it costs an unneeded atomic and changes nothing
            cuda.atomic.min(values, (b, slot), known + e)


@id_kernel("void(int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def mark_first(begin, end, known, values, slots, flags):
    """Set ``flags`` to 1 for edges whose own value is in the table, which are the first edges of new nodes, and to 0 for other edges."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        flags[b, e] = 1 if values[b, slots[b, e]] == known + e else 0


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def append_new(neighbors, begin, end, slots, ranks, values, nodes):
    """Assign local ids to new nodes and append them to ``nodes``. The first edge of a new node is where ``ranks``, the scan of the flags, increases."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        local = ranks[b, e]
        if ranks[b, e + 1] > local:
            nodes[b, local] = neighbors[b, e]
            values[b, slots[b, e]] = local


@id_kernel("void(int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def look_up(begin, end, values, slots, local):
    """Write the local id of every edge's source to ``local``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        local[b, e] = values[b, slots[b, e]]


@device_function
def enter_tile(values, row, slot, vertex, known, seen, num_seen, buffer):
    """Assign numbers to the new nodes of a tile, one node for each thread of the block. It serves searches whose steps depend on each other.

    Args:
        values: Numbers by row and slot. Nodes without a number have ``known`` + the threads of a block, or more.
        row: Row of ``values`` and ``seen`` that this block processes.
        slot: Slot of the thread's node, the same for equal nodes; negative if the thread has no node.
        vertex: Node of the thread.
        known: Upper bound of all numbers, also of the new nodes.
        seen: Nodes by row and number, to which new nodes are appended.
        num_seen: Number of seen nodes of the row.
        buffer: Shared scratch memory, an int64 for each thread.

    Returns:
        The number of the thread's node, and the number of new nodes. All threads see the numbers afterwards.
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
