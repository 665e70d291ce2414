"""Temporal neighbour sampling on the CPU: ``hoptrain.kernels.cpu.nodewise.neighbor`` restricted to edges that are not later than a bound.

Shapes: V nodes and E edges of the graph, B seeds, M edges of the batch. A node of the batch belongs to the tree of one seed. Its *key*, an ``int64``,
is ``tree << TREE_SHIFT | global id`` and replaces the global id of neighbour sampling. *Ranks* number the edges like edge ids, but each
column is ordered by time: ``by_time[rank]`` is the edge id.

The edges that a bound admits are the first ranks of a column, so one binary search finds their number. The searches of a chunk advance
together, one step at a time, so that their reads are in flight at the same time.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.nodewise.neighbor import num_groups
from hoptrain.kernels.cpu.nodewise.shares import draw_repeatedly, select
from hoptrain.kernels.cpu.offsets import distinct_offsets, independent_offsets, random_words
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.relabel import home, relabel
from hoptrain.kernels.shared.draws import ALL, num_draws, takes_all
from hoptrain.kernels.shared.philox import MAX_VERTEX
from hoptrain.kernels.shared.temporal import TREE_SHIFT

MAX_TREES = 1 << (63 - TREE_SHIFT)
_VERTEX = MAX_VERTEX - 1
_NO_TABLE = np.zeros(0, np.int32)


class TimedColumns(NamedTuple):
    """The CSC arrays of the graph, with columns ordered by time."""

    indptr: Any
    """(V+1,) offsets of the columns."""
    indices: Any
    """(E,) sources of the edges, by CSC position."""
    times: Any
    """(E,) int64 times by rank (position in time order); they ascend within a column."""
    by_time: Any
    """(E,) edge ids by rank."""


class TimedDrawOptions(NamedTuple):
    """The options of a hop: the number of edges of a node, and the way to choose them."""

    fanout: int
    """Fanout code (``hoptrain.kernels.shared.draws.fanout_code``), -1 for all edges."""
    replace: bool
    recent: bool
    """True to take the latest edges instead of random ones."""


@cpu_kernel
def order_by_time(indptr, times, by_time, sorted_times):
    """Fill ``by_time`` (E,) and ``sorted_times`` (E,) int64 by rank. Edges of the same time keep the order of their ids."""
    for v in range(len(indptr) - 1):
        begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        order = np.argsort(times[begin:end], kind="mergesort")
        for i in range(end - begin):
            by_time[begin + i] = begin + order[i]
            sorted_times[begin + i] = times[begin + order[i]]


@cpu_kernel
def enter_seeds(seeds, keys):
    """Fill ``keys`` with the keys of the seeds, each of which is the root of its own tree."""
    for i in range(len(seeds)):
        keys[i] = (i << TREE_SHIFT) | np.int64(seeds[i])


@cpu_kernel
def split_keys(keys, nodes, trees):
    """Split keys into the global id and the tree of each."""
    for i in range(len(keys)):
        nodes[i], trees[i] = keys[i] & _VERTEX, keys[i] >> TREE_SHIFT


@cpu_kernel
def count_edges(columns, keys, first, last, bounds, rule, scratch):
    """Return the total number of edges that a hop draws into the nodes ``keys[first:last]``."""
    lanes, chunk = scratch.lanes, scratch.offsets.shape[1]
    total = 0
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        _admit(columns, keys, begin, end, last, bounds, lanes)
        for i in range(end - begin):
            total += num_draws(lanes[_NUMBER, i], rule.fanout, rule.replace)
    return total


@cpu_kernel
def _drawn(columns, keys, begin, end, last, bounds, rule, address, scratch, edges, num_edges):
    """Draw edges of the nodes ``keys[begin:end]``, at most a chunk, as ranks in ``edges.edge_ids``. Return the number of edges."""
    _admit(columns, keys, begin, end, last, bounds, scratch.lanes)
    num_lanes = _assign_lanes(begin, end, rule, scratch.lanes)
    if num_lanes:
        _draw(num_lanes, rule, address, scratch)
    return _place(columns.by_time, begin, end, rule, address, scratch, edges, num_edges)


@cpu_kernel
def sample_hop(columns, keys, nodes, num_nodes, first, last, bounds, rule, address, table, scratch, edges, num_edges):
    """Sample in-neighbours of the nodes ``keys[first:last]`` by edges not later than the ``bounds`` (B,) of their trees, and relabel them.

    ``nodes`` holds ``num_nodes`` keys of the sources' type, to which the keys of new nodes are appended; in a homogeneous graph ``nodes`` is ``keys`` itself.
    ``edges`` already holds ``num_edges``; its ``indices`` are ``int64``. Returns the numbers of nodes and of edges after the hop.
    """
    indices, by_time, edge_ids, out_indices, out_indptr = columns.indices, columns.by_time, edges.edge_ids, edges.indices, edges.indptr
    entries, slot_bits = table.entries, table.slot_bits
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        after = _drawn(columns, keys, begin, end, last, bounds, rule, address, scratch, edges, num_edges)
        for j in places(num_edges, after):
            edge_ids[j] = by_time[unsigned(edge_ids[j])]
            prefetch_many(indices, edge_ids[j])
        before = num_edges
        for i in range(begin, end):
            tree, until = keys[i] & ~_VERTEX, np.int64(out_indptr[i + 1])
            for j in places(before, until):
                key = tree | np.int64(indices[unsigned(edge_ids[j])])
                out_indices[j] = key
                prefetch_many(entries, home(key, slot_bits))
            before = until
        num_nodes = relabel(out_indices, num_edges, after, table, nodes, num_nodes)
        num_edges = after
    return num_nodes, num_edges


@cpu_kernel
def draw_places(columns, keys, first, last, bounds, rule, address, scratch, edges, num_edges):
    """Draw only the edge ids of ``sample_hop``, without reading ``indices``, which need not be in memory. Return the number of edges."""
    by_time, edge_ids = columns.by_time, edges.edge_ids
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        after = _drawn(columns, keys, begin, end, last, bounds, rule, address, scratch, edges, num_edges)
        for j in places(num_edges, after):
            edge_ids[j] = by_time[unsigned(edge_ids[j])]
        num_edges = after
    return num_edges


@cpu_kernel
def sample_path_hop(columns, keys, num_nodes, first, last, bounds, trees, rule, address, scratch, edges, num_edges):
    """Sample a hop of time-respecting paths: each edge leads to a new node of the batch, and the next edge must be earlier.

    The keys are ``local id << TREE_SHIFT | global id``. ``bounds`` (int64) and ``trees`` (int32) have an entry for each node of the batch, and capacity for new
    nodes. Returns the numbers of nodes and of edges after the hop.
    """
    indices, times, by_time, edge_ids = columns.indices, columns.times, columns.by_time, edges.edge_ids
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        after = _drawn(columns, keys, begin, end, last, bounds, rule, address, scratch, edges, num_edges)
        for i in range(begin, end):
            for j in places(num_edges, np.int64(edges.indptr[i + 1])):
                rank = np.int64(edge_ids[j])
                edge_ids[j], edges.indices[j] = by_time[rank], num_nodes
                keys[num_nodes] = (num_nodes << TREE_SHIFT) | np.int64(indices[unsigned(edge_ids[j])])
                bounds[num_nodes], trees[num_nodes] = times[rank] - 1, trees[i]
                num_nodes += 1
            num_edges = np.int64(edges.indptr[i + 1])
        num_edges = after
    return num_nodes, num_edges


_BEGIN, _NUMBER, _LANE_NUMBER, _LANE_NODE, _END = 0, 1, 2, 3, 4
"""Row indices in ``lanes``.

For each node: the beginning of its column, and the number of its edges up to the time bound. For each lane, a node that draws edges: the
number of its edges up to the time bound, and its local id. During the binary search: the upper end of the remaining range.
"""


@cpu_kernel
def _admit(columns, keys, begin, end, last, bounds, lanes):
    """Find the columns of a chunk's nodes, and for each the number of edges that are not later than its bound."""
    indptr, times = columns.indptr, columns.times
    for i in range(end, min(2 * end - begin, last)):
        prefetch_many(indptr, keys[i] & _VERTEX)
    steps = 0
    own = keys[begin:end]
    for i in places(0, end - begin):
        vertex = own[i] & _VERTEX
        column, after = np.int64(indptr[unsigned(vertex)]), np.int64(indptr[unsigned(vertex + 1)])
        lanes[_BEGIN, i], lanes[_NUMBER, i], lanes[_END, i] = column, column, after
        steps = max(steps, after - column)
        prefetch_many(times, (column + after) >> 1)
    while steps > 0:
        steps >>= 1
        for i in places(0, end - begin):
            low, high = lanes[_NUMBER, i], lanes[_END, i]
            if low < high:
                middle = (low + high) >> 1
                is_admitted = times[unsigned(middle)] <= bounds[unsigned(own[i] >> TREE_SHIFT)]
                low, high = (middle + 1, high) if is_admitted else (low, middle)
                lanes[_NUMBER, i], lanes[_END, i] = low, high
                prefetch_many(times, (low + high) >> 1)
    for i in range(end - begin):
        lanes[_NUMBER, i] -= lanes[_BEGIN, i]


@cpu_kernel
def _assign_lanes(begin, end, rule, lanes):
    """Assign a lane to each node that draws, and return the number of lanes. Fanouts that are shares of the degree use no lanes."""
    fanout, replace, recent = rule.fanout, rule.replace, rule.recent
    num_lanes = 0
    for i in range(end - begin):
        number = lanes[_NUMBER, i]
        lanes[_LANE_NUMBER, num_lanes] = number
        lanes[_LANE_NODE, num_lanes] = begin + i
        num_lanes += 0 if recent or fanout < ALL or takes_all(number, fanout, replace) else 1
    return num_lanes


@cpu_kernel
def _draw(num_lanes, rule, address, scratch):
    words, offsets = scratch.words, scratch.offsets
    numbers, nodes = scratch.lanes[_LANE_NUMBER], scratch.lanes[_LANE_NODE]
    random_words(nodes, num_lanes, num_groups(rule.fanout, False), address.seed, address.epoch, address.batch, address.hop, words)
    if rule.replace:
        independent_offsets(words, numbers, num_lanes, rule.fanout, 1, offsets)
    else:
        distinct_offsets(words, numbers, num_lanes, rule.fanout, scratch.found, offsets)


@cpu_kernel
def _place(by_time, begin, end, rule, address, scratch, edges, num_edges):
    """Write the ranks of a chunk's edges to ``edges.edge_ids``, and prefetch their edge ids. Return the number of edges."""
    lanes, offsets, ranks, out_indptr = scratch.lanes, scratch.offsets, edges.edge_ids, edges.indptr
    fanout, replace, recent = rule.fanout, rule.replace, rule.recent
    lane = 0
    for i in range(end - begin):
        column, number = lanes[_BEGIN, i], lanes[_NUMBER, i]
        count = num_draws(number, fanout, replace)
        if recent or takes_all(number, fanout, replace):
            for j in range(count):
                ranks[unsigned(num_edges + j)] = column + number - count + j
        elif fanout < ALL and replace:
            draw_repeatedly(np.uint64(begin + i), column, number, count, False, _NO_TABLE, _NO_TABLE, address, ranks, num_edges)
        elif fanout < ALL:
            select(np.uint64(begin + i), column, number, count, address, ranks, num_edges)
        else:
            for j in range(count):
                ranks[unsigned(num_edges + j)] = column + offsets[unsigned(j), unsigned(lane)]
            lane += 1
        for j in places(num_edges, num_edges + count):
            prefetch_many(by_time, ranks[j])
        num_edges += count
        out_indptr[begin + i + 1] = num_edges
    return num_edges
