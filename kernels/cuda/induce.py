"""The in-edges of some nodes whose other end is wanted: those between the nodes of a subgraph, or from drawn nodes.

All in-edges of a batch's nodes, one column after the other, are cut into as many *parts* of equal length as there shall be threads, whatever
the degrees. A thread counts what is wanted in its part; after a scan of the counts it writes that, in the graph's order. Which nodes are
wanted is asked of a relabelling table (``hoptrain.kernels.cuda.relabel``), at most half full.

A node is a node, or a *pair* where a batch is many subgraphs that do not touch: the subgraph's number above 40 bits of the node. The
table then holds pairs as well; an edge is wanted if the pair of its other end and the same subgraph is there.

Shapes: K batches, a row of every matrix for each; S nodes and T in-edges of a batch, M of them wanted.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.relabel import hash_of
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.shared import shared

PAIR_BITS = 40
"""Bits of the node in a pair."""
_VERTEX = np.int64((1 << PAIR_BITS) - 1)
_EMPTY = -1


def scan_in_edges(launch, indptr, nodes, capacity, count, offsets, sums, zeros, num_in_edges):
    """Write where the in-edges of each of ``nodes[b, :count[b]]`` stand among those of all, into ``offsets`` (K, S+1).

    ``capacity``: the most nodes of a batch; ``sums``: the scan's scratch; ``zeros`` (K,) int64; ``num_in_edges`` (K,) int64, receives T.
    """
    launch.rows(count_in_edges, capacity, indptr, nodes, count, offsets)
    exclusive_scan(launch, offsets, capacity, zeros, count, zeros, sums, num_in_edges)


def pick_wanted(launch, graph, nodes, count, offsets, table, parts, scratch, output, num_edges):
    """Write the wanted in-edges of ``nodes[b, :count[b]]``.

    Args:
        launch: of the bulk.
        graph: indptr (V+1,) and indices (E,).
        nodes: (K, S) nodes, or pairs.
        count: (K,) int64.
        offsets: (K, S+1), see ``scan_in_edges``.
        table: keys and values (K, power of two).
        parts: (number, row): into how many parts the work is cut; the same in each of a row (K,) int64.
        scratch: hits (K, parts+1), the scan's sums, zeros (K,) int64.
        output: indptr (K, S+1), edge ids (K, room), values (K, room) of the edges' other ends; room for fewer than M cuts them off.
        num_edges: (K,) int64, receives M.
    """
    hits, sums, zeros = scratch
    number, ends = parts
    launch.rows(count_wanted, number, *graph, nodes, count, offsets, *table, number, hits)
    exclusive_scan(launch, hits, number, zeros, ends, zeros, sums, num_edges)
    launch.rows(write_wanted, number, *graph, nodes, count, offsets, *table, number, hits, *output)


@shared
def vertex_of(node):
    """The node of a node, which may be a pair."""
    return np.int64(node) & _VERTEX


@shared
def with_vertex(node, vertex):
    """The node of a node in the subgraph of another node."""
    return (np.int64(node) & ~_VERTEX) | np.int64(vertex)


@device_function
def value_of(keys, values, b, node):
    """The value of a node, -1 if row ``b`` does not hold it. The row has an empty place."""
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
    """Which of the rows from ``low`` to ``high`` the place is in; rows of no length have none. ``offsets[b, low] <= place < offsets[b, high]``."""
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
    """The in-degrees of the nodes."""
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
    """How many edges of each part are wanted."""
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
    """Write each part's edges to where its count, scanned, says; and where each node's edges begin, those without any in-edge included."""
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
            before = row - 1  # rows without an in-edge that begin here too
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
            while place == total and row <= rows:  # the end, and rows without an in-edge before it
                out_indptr[b, row] = out
                row += 1
        part += cuda.gridDim.x * cuda.blockDim.x
