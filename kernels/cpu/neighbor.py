"""Neighbour sampling of one hop on the CPU: draw, fetch, relabel, some destinations at a time.

Shapes: V vertices and E edges of the graph, M edges of the hop. Global ids name vertices of the graph, local ids count the nodes of the
mini-batch, positions count the edges of the graph (index into ``indices``).

Nearly all the time goes into waiting for memory: one cache line of ``indices`` for every edge or two, one entry of the relabelling table for
every edge. So destinations are taken in chunks: each pass over a chunk asks for what the next pass will read. Offsets of the next chunk,
neighbours, table entries are then all under way before they are needed, and one chunk's scratch stays in the first-level cache.

Loops read arrays through local names: a field of a named tuple costs two atomic operations (a reference taken and dropped) each time.

A destination's edges stand in the order of their draws; where all neighbours are taken, in the graph's order.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.offsets import distinct_offsets, independent_offsets, random_words, weighted_offsets
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.cpu.relabel import home, relabel
from hoptrain.kernels.shared.draws import num_draws, takes_all

_CHUNK_EDGES = 640
"""Edges of a chunk, about: enough that a pass has its reads in flight, few enough that the lines asked for stay in the caches."""
_VECTOR = 16
"""Lanes of a chunk come in whole vectors."""
_AHEAD = 32
_LINE = 16


class Columns(NamedTuple):
    """The graph, and the alias tables of its columns (empty arrays without weights)."""

    indptr: Any
    """(V+1,) offsets."""
    indices: Any
    """(E,) sources."""
    threshold: Any
    """(E,) uint32, see ``hoptrain.kernels.cpu.alias``."""
    alias: Any
    """(E,) int32."""


class Rule(NamedTuple):
    """How many edges a destination gives, and how they are drawn."""

    fanout: int
    """-1 for all."""
    replace: bool
    weighted: bool
    """By the alias tables; only with replacement."""


class Address(NamedTuple):
    """Where the random words come from; all ``uint64``."""

    seed: Any
    epoch: Any
    batch: Any
    hop: Any


class Scratch(NamedTuple):
    """Memory for one chunk; the second dimension of ``offsets`` is the size of a chunk."""

    words: Any
    """(4, G * chunk) uint32."""
    offsets: Any
    """(k, chunk) int32."""
    lanes: Any
    """(5, chunk) int64."""
    found: Any
    """(chunk,) int32."""


class Edges(NamedTuple):
    """Sampled edges in compressed columns, with room for those of the hop."""

    indptr: Any
    """Entry i + 1 receives the end of destination i's edges."""
    positions: Any
    indices: Any
    """Sources: local ids after relabelling, global ones before."""


def scratch_shapes(fanout, weighted):
    """The shapes of ``words`` and ``offsets`` for a hop; a small fanout gets a large chunk, a huge one a chunk of a single destination."""
    count = max(fanout, 1)
    chunk = min(128, -(-_CHUNK_EDGES // count // _VECTOR) * _VECTOR, max(1, (1 << 16) // count))
    return (4, num_groups(count, weighted) * chunk), (count, chunk)


@cpu_kernel
def num_groups(count, weighted):
    """Groups of four random words for ``count`` draws."""
    return ((2 * count if weighted else count) + 3) // 4


@cpu_kernel
def count_edges(columns, nodes, first, last, rule):
    """How many edges the destinations ``nodes[first:last]`` give together."""
    indptr, alias, weighted = columns.indptr, columns.alias, rule.weighted
    total = 0
    for i in range(first, last):
        prefetch(indptr, np.int64(nodes[min(i + _AHEAD, last - 1)]))
        total += num_draws(_column(indptr, alias, weighted, nodes[i])[1], rule.fanout, rule.replace)
    return total


@cpu_kernel
def sample_hop(columns, nodes, num_nodes, first, last, rule, address, table, scratch, edges, num_edges):
    """Sample the in-neighbours of the destinations ``nodes[first:last]`` and relabel them.

    ``nodes`` (global ids) holds ``num_nodes`` nodes; new ones are appended; ``edges`` holds ``num_edges`` already. Returns both numbers
    after the hop.
    """
    indices, positions, out_indices = columns.indices, edges.positions, edges.indices
    entries, slot_bits = table.entries, table.slot_bits
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        after = _draw_chunk(columns, nodes, begin, min(begin + chunk, last), last, rule, address, scratch, edges, num_edges)
        for j in range(num_edges, after):
            vertex = indices[positions[j]]
            out_indices[j] = vertex
            prefetch(entries, home(vertex, slot_bits))
        num_nodes = relabel(out_indices, num_edges, after, table, nodes, num_nodes)
        num_edges = after
    return num_nodes, num_edges


@cpu_kernel
def draw_hop(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """The same without relabelling: for threads that each take some of the destinations. Returns the number of edges."""
    indices, positions, out_indices = columns.indices, edges.positions, edges.indices
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        after = _draw_chunk(columns, nodes, begin, min(begin + chunk, last), last, rule, address, scratch, edges, num_edges)
        for j in range(num_edges, after):
            out_indices[j] = indices[positions[j]]
        num_edges = after
    return num_edges


@cpu_kernel
def _draw_chunk(columns, nodes, begin, end, last, rule, address, scratch, edges, num_edges):
    """Draw the positions of a chunk's edges; the neighbours there, and the columns of the next chunk, are on their way afterwards."""
    indptr = columns.indptr
    for i in range(end, min(2 * end - begin, last)):
        prefetch(indptr, np.int64(nodes[i]))
    num_lanes = _locate(columns, nodes, begin, end, rule, scratch.lanes)
    if num_lanes:
        _draw(columns, num_lanes, rule, address, scratch)
    return _place(columns.indices, begin, end, rule.fanout, scratch, edges, num_edges)


_BEGIN, _LANE, _LANE_BEGIN, _LANE_DEGREE, _LANE_VERTEX = 0, 1, 2, 3, 4
"""Rows of ``lanes``. Of a destination: where its column begins; its lane, or ``-1 - degree`` if it takes all. Of a lane: its column's
beginning and degree, its vertex."""


@cpu_kernel
def _column(indptr, alias, weighted, vertex):
    """Where the vertex's column begins, and its degree: 0 if no edge of it has any weight."""
    begin = np.int64(indptr[vertex])
    degree = np.int64(indptr[vertex + 1]) - begin
    if weighted and degree > 0 and alias[begin] < 0:
        degree = 0
    return begin, degree


@cpu_kernel
def _locate(columns, nodes, begin, end, rule, lanes):
    """Find the columns of a chunk's destinations and give a lane to those that draw; returns the number of lanes."""
    indptr, alias, weighted = columns.indptr, columns.alias, rule.weighted
    num_lanes = 0
    for i in range(begin, end):
        vertex = np.int64(nodes[i])
        column, degree = _column(indptr, alias, weighted, vertex)
        draws = not takes_all(degree, rule.fanout, rule.replace)
        lanes[_BEGIN, i - begin] = column
        lanes[_LANE, i - begin] = num_lanes if draws else -1 - degree
        lanes[_LANE_BEGIN, num_lanes] = column
        lanes[_LANE_DEGREE, num_lanes] = degree
        lanes[_LANE_VERTEX, num_lanes] = vertex
        num_lanes += 1 if draws else 0
    return num_lanes


@cpu_kernel
def _draw(columns, num_lanes, rule, address, scratch):
    words, offsets = scratch.words, scratch.offsets
    begins, degrees, vertices = scratch.lanes[_LANE_BEGIN], scratch.lanes[_LANE_DEGREE], scratch.lanes[_LANE_VERTEX]
    groups = num_groups(rule.fanout, rule.weighted)
    random_words(vertices, num_lanes, groups, address.seed, address.epoch, address.batch, address.hop, words)
    if rule.weighted:
        weighted_offsets(words, begins, degrees, num_lanes, rule.fanout, columns.threshold, columns.alias, offsets)
    elif rule.replace:
        independent_offsets(words, degrees, num_lanes, rule.fanout, 1, offsets)
    else:
        distinct_offsets(words, degrees, num_lanes, rule.fanout, scratch.found, offsets)


@cpu_kernel
def _place(indices, begin, end, fanout, scratch, edges, num_edges):
    """Write the positions of a chunk's edges and ask for the neighbours there; returns the number of edges."""
    lanes, offsets, positions, out_indptr = scratch.lanes, scratch.offsets, edges.positions, edges.indptr
    for i in range(begin, end):
        column = lanes[_BEGIN, i - begin]
        lane = lanes[_LANE, i - begin]
        if lane >= 0:
            for j in range(fanout):
                position = column + offsets[j, lane]
                positions[num_edges + j] = position
                prefetch(indices, position)
            num_edges += fanout
        else:
            degree = -1 - lane
            for j in range(degree):
                positions[num_edges + j] = column + j
            for position in range(column, column + degree, _LINE):
                prefetch(indices, position)
            num_edges += degree
        out_indptr[i + 1] = num_edges
    return num_edges
