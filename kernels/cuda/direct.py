"""Local ids in order of first appearance, from a table a batch with an entry for every vertex.

That is for graphs of so few vertices that the tables of the batches that run at once stay in the second-level cache. As with a hash table
(``relabel``) every vertex keeps the smallest number that asked for it: its local id if it is known, else ``known`` + the place of its first
edge. But a bulk's numbers stand there added to the bulk's ``start``, and each bulk starts lower than the one before by more than the numbers
that it has. So whatever earlier bulks left behind is larger than all that this one enters, like an empty entry, and nothing is cleared in
between.

Who is first is marked, counted and numbered tile by tile, as in ``scan``: the first edge to a new vertex holds the complement of the vertex
meanwhile, which is negative, so that no other array is needed and each edge is written by its own thread alone.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.scan import block_scan, num_tiles, scan_sums
from hoptrain.kernels.cuda.widths import id_kernel

EMPTY = np.iinfo(np.int32).max
"""What a new table is filled with: above all numbers."""


def relabel_direct(launch, neighbors, nodes, capacity, begin, end, known, table, sums, num_before, num_after):
    """Turn the vertices ``neighbors[b, begin[b]:end[b]]`` into local ids, in place, and append new ones to ``nodes``.

    Args:
        launch: of the bulk.
        neighbors: (K, M) vertices in, local ids out.
        nodes: (K, N) vertices by local id, with room for the new ones.
        capacity: the most edges of a batch.
        begin: (K,) int64.
        end: (K,) int64.
        known: not below any local id that there is or will be.
        table: start (K,) int64, and entries (K, V) int32, holding the known nodes. ``start`` + ``known`` + M is at most ``EMPTY``.
        sums: scratch of a scan over M items.
        num_before: (K,) int64 known nodes.
        num_after: (K,) int64, written.
    """
    edges, shared_bytes = (neighbors, begin, end), launch.thresholds.scan_bytes
    launch.batch_by_batch(ask_entries, capacity, *edges, known, *table)
    launch.batch_by_batch(mark_tiles, capacity, *edges, known, *table, sums, shared_bytes=shared_bytes)
    launch.one_block_each(scan_sums, begin, end, num_before, sums, num_after, shared_bytes=shared_bytes)
    launch.batch_by_batch(number_tiles, capacity, *edges, *table, sums, nodes, shared_bytes=shared_bytes)
    launch.batch_by_batch(read_entries, capacity, *edges, *table)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int32[:, ::1], ID[:, ::1])")
def enter_direct(source, count, start, entries, nodes):
    """Enter ``source[b, :count[b]]`` with their places as local ids, and copy them to ``nodes``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = source[b, i]
        nodes[b, i] = vertex
        cuda.atomic.min(entries, (b, vertex), start[b] + i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int32[:, ::1], int64[::1])")
def find_repeated_direct(nodes, count, start, entries, repeated):
    """Lower ``repeated[b]`` to the first place whose vertex stands before it as well. ``enter_direct`` has run."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        if entries[b, nodes[b, i]] != start[b] + i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1])")
def ask_entries(neighbors, begin, end, known, start, entries):
    """Let every edge ask for its vertex."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex, number = neighbors[b, e], start[b] + known + e
        if entries[b, vertex] > number:  # an old entry read here is a larger one: it costs an atomic and changes nothing
            cuda.atomic.min(entries, (b, vertex), number)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1], int64[:, ::1])")
def mark_tiles(neighbors, begin, end, known, start, entries, sums):
    """Complement the vertices of edges whose own number won; how many of a tile did goes to ``sums``."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        e = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        is_first = 0
        if e < end[b]:
            vertex = neighbors[b, e]
            if entries[b, vertex] == start[b] + known + e:
                is_first = 1
                neighbors[b, e] = ~vertex
        total = block_scan(buffer, is_first)
        if cuda.threadIdx.x == cuda.blockDim.x - 1:
            sums[b, tile] = total
        cuda.syncthreads()


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1], int64[:, ::1], ID[:, ::1])")
def number_tiles(neighbors, begin, end, start, entries, sums, nodes):
    """Give new vertices their local ids; ``sums`` are scanned and have those of the tiles' first ones."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        e = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        marked = np.int64(neighbors[b, e]) if e < end[b] else np.int64(0)
        is_first = 1 if marked < 0 else 0
        rank = block_scan(buffer, is_first)
        if is_first:
            local = sums[b, tile] + rank - 1
            nodes[b, local] = ~marked
            entries[b, ~marked] = start[b] + local
        cuda.syncthreads()


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1])")
def read_entries(neighbors, begin, end, start, entries):
    """The local id of every edge's source."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = np.int64(neighbors[b, e])
        neighbors[b, e] = entries[b, ~vertex if vertex < 0 else vertex] - start[b]
