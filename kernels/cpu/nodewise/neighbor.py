"""Neighbour sampling of one hop on the CPU: draw, fetch and relabel, for chunks of destinations.

Shapes: V nodes and E edges of the graph, M edges of the hop. Global ids are nodes of the graph, local ids number the nodes of the mini-batch,
edge ids are CSC positions (index into ``indices``).

Nearly all the time is spent waiting for memory: a cache line of ``indices`` for every edge or two, and an entry of the relabelling table for
every edge. So destinations are processed in chunks, and each pass over a chunk prefetches what a later pass reads. Offsets of the next chunk,
neighbours and table entries are then in flight before they are needed, and the scratch memory of a chunk stays in the first-level cache.

Loops read arrays through local names: each access to a field of a named tuple costs two atomic operations, which take and drop a reference.

A destination's edges are in the order of the draws; if all neighbours are taken, in the graph's order.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.offsets import draw_distinct, draw_independent, random_words, weighted_offsets
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch, prefetch_many
from hoptrain.kernels.cpu.relabel import home, relabel
from hoptrain.kernels.shared.draws import num_draws, takes_all

_CHUNK_EDGES = 1280
"""Approximate number of edges of a chunk of destinations, which are processed together.

A chunk is large enough to keep reads in flight, and small enough that prefetched
cache lines are not evicted before use.
"""
_VECTOR = 16
"""Number of destinations to which the size of a chunk is rounded up, so that loops over a chunk can use whole SIMD vectors."""
_AHEAD = 32
_LINE = 16
_ONE = np.uint64(1)


class CscColumns(NamedTuple):
    """The CSC arrays of the graph, and the alias tables of its columns (empty arrays without weights)."""

    indptr: Any
    """(V+1,) offsets of the columns."""
    indices: Any
    """(E,) sources of the edges."""
    threshold: Any
    """(E,) uint32 thresholds of the alias tables, see ``hoptrain.kernels.cpu.alias``."""
    alias: Any
    """(E,) int32 aliases of the alias tables, see ``hoptrain.kernels.cpu.alias``."""


class DrawOptions(NamedTuple):
    """The options of a hop: the number of edges of a destination, and the way to draw them."""

    fanout: int
    """Fanout code (``hoptrain.kernels.shared.draws.fanout_code``), -1 for all edges. Only ``count_edges`` supports fractions of the degree."""
    replace: bool
    weighted: bool
    """True to draw by weight with the alias tables. Such draws are always with replacement, so ``replace`` must be True."""


class HopScratch(NamedTuple):
    """Scratch memory for one chunk; the second dimension of ``offsets`` is the number of destinations in a chunk."""

    words: Any
    """(4, G * chunk) uint32 random words of the chunk's destinations, in G groups of four words each."""
    offsets: Any
    """(k, chunk) int32: for each draw (row) and destination (column), the position of the drawn edge within its column."""
    lanes: Any
    """(5, chunk) int64 properties of the lanes, which are the destinations that draw edges. This module uses four of the five rows."""
    found: Any
    """(chunk,) int32 scratch memory for ``draw_distinct``."""


class HopEdges(NamedTuple):
    """Sampled edges in compressed columns, with capacity for the edges of the hop."""

    indptr: Any
    """(D+1,) offsets. Entry i + 1 receives the offset after the last edge of destination i."""
    edge_ids: Any
    indices: Any
    """Sources of the edges: local ids after relabelling, global ids before."""


def scratch_shapes(fanout, weighted):
    """Return the shapes of ``words`` and ``offsets`` for a hop. A chunk has many destinations for small fanouts, and a single one for huge fanouts."""
    count = max(fanout, 1)
    chunk = min(128, -(-_CHUNK_EDGES // count // _VECTOR) * _VECTOR, max(1, (1 << 16) // count))
    return (4, num_groups(count, weighted) * chunk), (count, chunk)


@cpu_kernel
def num_groups(count, weighted):
    """Return the number of groups of four random words for ``count`` draws."""
    return ((2 * count if weighted else count) + 3) // 4


@cpu_kernel
def count_edges(columns, nodes, first, last, rule):
    """Return the total number of edges that a hop draws into the destinations ``nodes[first:last]``."""
    indptr, alias, weighted = columns.indptr, columns.alias, rule.weighted
    total = 0
    for i in range(first, last):
        prefetch(indptr, np.int64(nodes[min(i + _AHEAD, last - 1)]))
        total += num_draws(column_of(indptr, alias, weighted, nodes[i])[1], rule.fanout, rule.replace)
    return total


@cpu_kernel
def sample_hop(columns, nodes, num_nodes, first, last, rule, address, table, scratch, edges, num_edges):
    """Sample the in-neighbours of the destinations ``nodes[first:last]`` and relabel them.

    ``nodes`` holds ``num_nodes`` global ids, to which new nodes are appended; ``edges`` already holds ``num_edges``. Returns the numbers of nodes and of edges
    after the hop.
    """
    before, chunk = num_edges, scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        after = _draw_chunk(columns, nodes, begin, min(begin + chunk, last), last, rule, address, scratch, edges, num_edges)
        num_nodes = _fetch_and_relabel(columns.indices, edges, before, num_edges, table, nodes, num_nodes)
        before, num_edges = num_edges, after
    return _fetch_and_relabel(columns.indices, edges, before, num_edges, table, nodes, num_nodes), num_edges


@cpu_kernel
def draw_hop(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """Sample in-neighbours as ``sample_hop`` does, without relabelling: for threads that share the destinations. Return the number of edges."""
    before, chunk = num_edges, scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        after = _draw_chunk(columns, nodes, begin, min(begin + chunk, last), last, rule, address, scratch, edges, num_edges)
        _fetch(columns.indices, edges, before, num_edges)
        before, num_edges = num_edges, after
    _fetch(columns.indices, edges, before, num_edges)
    return num_edges


@cpu_kernel
def draw_places(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """Draw only the edge ids, without reading ``indices``, which need not be in memory. Return the number of edges."""
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        num_edges = _draw_chunk(columns, nodes, begin, min(begin + chunk, last), last, rule, address, scratch, edges, num_edges)
    return num_edges


@cpu_kernel
def _fetch_and_relabel(indices, edges, first, last, table, nodes, num_nodes):
    """Look up the sources of the edges [first, last) and replace them by local ids. Return the new number of nodes."""
    edge_ids, out_indices, entries, slot_bits = edges.edge_ids, edges.indices, table.entries, table.slot_bits
    for j in places(first, last):
        vertex = indices[unsigned(edge_ids[j])]
        out_indices[j] = vertex
        prefetch_many(entries, home(vertex, slot_bits))
    return relabel(out_indices, first, last, table, nodes, num_nodes)


@cpu_kernel
def _fetch(indices, edges, first, last):
    edge_ids, out_indices = edges.edge_ids, edges.indices
    for j in places(first, last):
        out_indices[j] = indices[unsigned(edge_ids[j])]


@cpu_kernel
def _draw_chunk(columns, nodes, begin, end, last, rule, address, scratch, edges, num_edges):
    """Draw the edge ids of a chunk's edges, and return the number of edges.

    It prefetches their neighbours and the offsets of the next chunk. The neighbours are read one chunk later.
    """
    indptr = columns.indptr
    for i in places(end, min(2 * end - begin, last)):
        prefetch_many(indptr, nodes[i])
    num_lanes, num_edges = _locate(columns, nodes, begin, end, rule, scratch.lanes, edges, num_edges)
    if num_lanes:
        _draw(columns, num_lanes, rule, address, scratch, edges.edge_ids)
    return num_edges


_FIRST, _BEGIN, _DEGREE, _VERTEX = 0, 1, 2, 3
"""Row indices in ``lanes``: position of the lane's first edge in the result, beginning and degree of the column of its node, and the node itself."""


@cpu_kernel
def column_of(indptr, alias, weighted, vertex):
    """Return the beginning and the degree of a node's column; the degree is 0 if all its edges have weight 0."""
    begin = np.int64(indptr[unsigned(vertex)])
    degree = np.int64(indptr[unsigned(vertex + 1)]) - begin
    if weighted and degree > 0 and alias[unsigned(begin)] < 0:
        degree = 0
    return begin, degree


@cpu_kernel
def _locate(columns, nodes, begin, end, rule, lanes, edges, num_edges):
    """Assign a lane to each destination of a chunk that draws, and take all edges of the remaining ones. Return the number of lanes and of edges."""
    indptr, alias, weighted, indices = columns.indptr, columns.alias, rule.weighted, columns.indices
    edge_ids, out_indptr = edges.edge_ids, edges.indptr
    num_lanes = 0
    for i in places(begin, end):
        vertex = np.int64(nodes[i])
        column, degree = column_of(indptr, alias, weighted, vertex)
        if takes_all(degree, rule.fanout, rule.replace):
            for j in range(degree):
                edge_ids[unsigned(num_edges + j)] = column + j
            for position in range(column, column + degree, _LINE):
                prefetch_many(indices, position)
            num_edges += degree
        else:
            lane = unsigned(num_lanes)
            lanes[_FIRST, lane] = num_edges
            lanes[_BEGIN, lane] = column
            lanes[_DEGREE, lane] = degree
            lanes[_VERTEX, lane] = vertex
            num_lanes += 1
            num_edges += rule.fanout
        out_indptr[i + _ONE] = num_edges
    return num_lanes, num_edges


@cpu_kernel
def _draw(columns, num_lanes, rule, address, scratch, edge_ids):
    """Draw the edges of all lanes, one per lane at a time: the neighbours of a draw are prefetched while the next draw is computed."""
    words, offsets, fanout = scratch.words, scratch.offsets, rule.fanout
    begins, degrees, vertices = scratch.lanes[_BEGIN], scratch.lanes[_DEGREE], scratch.lanes[_VERTEX]
    groups = num_groups(fanout, rule.weighted)
    random_words(vertices, num_lanes, groups, address.seed, address.epoch, address.batch, address.hop, words)
    if rule.weighted:
        weighted_offsets(words, begins, degrees, num_lanes, fanout, columns.threshold, columns.alias, offsets)
    for j in range(fanout):
        if rule.replace and not rule.weighted:
            draw_independent(words, degrees, num_lanes, j, offsets[j])
        elif not rule.replace:
            draw_distinct(words, degrees, num_lanes, fanout, j, scratch.found, offsets)
        _place(columns.indices, scratch.lanes, num_lanes, j, offsets[j], edge_ids)


@cpu_kernel
def _place(indices, lanes, num_lanes, j, offsets, edge_ids):
    """Write the edge ids of draw number ``j`` of every lane, and prefetch the neighbours."""
    firsts, begins = lanes[_FIRST], lanes[_BEGIN]
    for lane in range(num_lanes):
        position = begins[lane] + offsets[lane]
        edge_ids[unsigned(firsts[lane] + j)] = position
        prefetch_many(indices, position)
