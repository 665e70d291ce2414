"""Selection of in-edges whose source is in a given set: the edges of an induced subgraph, or the edges from drawn nodes.

The in-edges of a batch's nodes, one column after another, are split into *parts* of equal length, one for each thread, independent of the degrees.
A thread counts the wanted edges of its part; after a scan of the counts it writes them, in the graph's order. The set of wanted sources is a
relabelling table (``hoptrain.kernels.cuda.relabel``) that is at most half full.

A node is a global id, or a *pair* if a batch consists of many disjoint subgraphs: the subgraph's number above 40 bits of the global id. The table
then holds pairs, too; an edge is wanted if the pair of its source and the same subgraph is in the table.

Shapes: K batches with a row of every matrix each; S nodes and T in-edges of a batch, M of them wanted.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.relabel import hash_of
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.shared import shared

PAIR_BITS = 40
"""Number of bits of the global id in an int64 that encodes a pair (index of the subgraph, global id)."""
_VERTEX = np.int64((1 << PAIR_BITS) - 1)
_EMPTY = -1


def scan_in_edges(launch, indptr, nodes, capacity, count, offsets, sums, zeros, num_in_edges):
    """Write the offset of each node's in-edges among those of all nodes ``nodes[b, :count[b]]`` to ``offsets`` (K, S+1).

    ``capacity`` is the maximum number of nodes of a batch, ``sums`` the scan's scratch memory, ``zeros`` (K,) int64 zeros. ``num_in_edges`` (K,) int64
    receives T.
    """
    launch.rows(count_in_edges, capacity, indptr, nodes, count, offsets)
    exclusive_scan(launch, offsets, capacity, zeros, count, zeros, sums, num_in_edges)


def pick_wanted(launch, graph, nodes, count, offsets, table, parts, scratch, output, num_edges):
    """Write the wanted in-edges of ``nodes[b, :count[b]]``.

    Args:
        launch: Launcher of the bulk.
        graph: Arrays indptr (V+1,) and indices (E,).
        nodes: (K, S) global ids, or pairs.
        count: (K,) int64 number of nodes.
        offsets: (K, S+1) offsets from ``scan_in_edges``.
        table: Keys and values (K, power of two) of the wanted sources.
        parts: Number of parts, and a row (K,) int64 filled with this number.
        scratch: Scratch memory: hits (K, parts+1), the scan's sums, and zeros (K,) int64.
        output: Arrays indptr (K, S+1), edge ids (K, C) and table values of the sources (K, C). If the capacity C is below M, the rest is dropped.
        num_edges: (K,) int64, receives M.
    """
    hits, sums, zeros = scratch
    number, ends = parts
    launch.rows(count_wanted, number, *graph, nodes, count, offsets, *table, number, hits)
    exclusive_scan(launch, hits, number, zeros, ends, zeros, sums, num_edges)
    launch.rows(write_wanted, number, *graph, nodes, count, offsets, *table, number, hits, *output)


@shared
def vertex_of(node):
    """Return the global id of a node, which may be a pair."""
    return np.int64(node) & _VERTEX


@shared
def with_vertex(node, vertex):
    """Return the node (or pair) of a global id in the same subgraph as ``node``."""
    return (np.int64(node) & ~_VERTEX) | np.int64(vertex)


@device_function
def value_of(keys, values, b, node):
    """Return the value of a node in row ``b`` of a table, or -1 if the row does not contain the node. The row must have a free slot."""
    mask = keys.shape[1] - 1
    slot = hash_of(node) & mask
    while True:
        key = keys[b, slot]
        if key == node:
            return np.int64(values[b, slot])
        if key == _EMPTY:
            return np.int64(_EMPTY)
        slot = (slot + 1) & mask


@device_function
def row_at(offsets, b, low, high, place):
    """Return the row in [low, high) that contains the position ``place``, for ``offsets[b, low] <= place < offsets[b, high]``. Empty rows are skipped."""
    low, high = np.int64(low), np.int64(high)
    while high - low > 1:
        middle = (low + high) >> 1
        if offsets[b, middle] <= place:
            low = middle
        else:
            high = middle
    return low


@cuda_kernel(
    "void(int32[::1], int32[:, ::1], int64[::1], int32[:, ::1])",
    "void(int64[::1], int64[:, ::1], int64[::1], int64[:, ::1])",
    "void(int32[::1], int64[:, ::1], int64[::1], int32[:, ::1])",
)
def count_in_edges(indptr, nodes, count, degrees):
    """Write the in-degrees of the nodes to ``degrees``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = vertex_of(nodes[b, i])
        degrees[b, i] = np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex])


@cuda_kernel(
    "void(int32[::1], int32[::1], int32[:, ::1], int64[::1], int32[:, ::1], int32[:, ::1], int32[:, ::1], int64, int32[:, ::1])",
    "void(int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1])",
    "void(int32[::1], int32[::1], int64[:, ::1], int64[::1], int32[:, ::1], int64[:, ::1], int32[:, ::1], int64, int32[:, ::1])",
)
def count_wanted(indptr, indices, nodes, count, offsets, keys, values, parts, hits):
    """Write the number of wanted edges of each part to ``hits``."""
    b = cuda.blockIdx.y
    total = np.int64(offsets[b, count[b]])
    share = (total + parts - 1) // parts
    part = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    while part < parts:
        place, last = part * share, min(total, part * share + share)
        found = 0
        row = row_at(offsets, b, 0, count[b], place) if place < last else np.int64(0)
        while place < last:
            node, stop = nodes[b, row], min(last, np.int64(offsets[b, row + 1]))
            position = np.int64(indptr[vertex_of(node)]) + place - np.int64(offsets[b, row])
            while place < stop:
                if value_of(keys, values, b, with_vertex(node, indices[position])) >= 0:
                    found += 1
                position += 1
                place += 1
            row += 1
        hits[b, part] = found
        part += cuda.gridDim.x * cuda.blockDim.x


@cuda_kernel(
    "void(int32[::1], int32[::1], int32[:, ::1], int64[::1], int32[:, ::1], int32[:, ::1], int32[:, ::1], int64, int32[:, ::1], "
    "int32[:, ::1], int32[:, ::1], int32[:, ::1])",
    "void(int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], "
    "int64[:, ::1], int64[:, ::1], int64[:, ::1])",
    "void(int32[::1], int32[::1], int64[:, ::1], int64[::1], int32[:, ::1], int64[:, ::1], int32[:, ::1], int64, int32[:, ::1], "
    "int32[:, ::1], int32[:, ::1], int32[:, ::1])",
)
def write_wanted(indptr, indices, nodes, count, offsets, keys, values, parts, hits, out_indptr, out_edges, out_values):
    """Write each part's wanted edges from the offset in the scanned ``hits`` on, and the offsets of all nodes, also of nodes without in-edges."""
    b = cuda.blockIdx.y
    rows = count[b]
    total = np.int64(offsets[b, rows])
    share = (total + parts - 1) // parts
    part = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if part == 0 and total == 0:
        for row in range(rows + 1):
            out_indptr[b, row] = 0
    while part < parts:
        place, last = part * share, min(total, part * share + share)
        out = np.int64(hits[b, part])
        row = np.int64(0)
        if place < last:
            row = row_at(offsets, b, 0, rows, place)
            before = row - 1  # the previous row: empty rows begin at the same position and get the same offset
            while before >= 0 and offsets[b, before] == place:
                out_indptr[b, before] = out
                before -= 1
        while place < last:
            if offsets[b, row] == place:
                out_indptr[b, row] = out
            node, stop = nodes[b, row], min(last, np.int64(offsets[b, row + 1]))
            position = np.int64(indptr[vertex_of(node)]) + place - np.int64(offsets[b, row])
            while place < stop:
                value = value_of(keys, values, b, with_vertex(node, indices[position]))
                if value >= 0:
                    if out < out_edges.shape[1]:
                        out_edges[b, out] = position
                        out_values[b, out] = value
                    out += 1
                position += 1
                place += 1
            row += 1
            while place == total and row <= rows:  # the end offset, and the offsets of empty rows before it
                out_indptr[b, row] = out
                row += 1
        part += cuda.gridDim.x * cuda.blockDim.x
