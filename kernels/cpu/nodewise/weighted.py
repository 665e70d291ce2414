"""Weighted draws without replacement (successive sampling), for many nodes at once.

Each draw is weighted among the edges that are not drawn yet. Drawing with replacement and dropping repeats has exactly this distribution, and
alias tables make such a draw cheap for any degree. If a few edges hold nearly all the weight, repeats would not end. After ``most_attempts``
draws the column is therefore scanned, with weights as integers.

``count_edges`` and ``draw_hop`` take the arguments of the functions with these names in ``hoptrain.kernels.cpu.nodewise.neighbor``, with ``WeightedColumns``.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.offsets import random_words, weighted_offsets
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch, prefetch_many
from hoptrain.kernels.shared.draws import alias_offset, bounded, bounded64, num_draws, takes_all
from hoptrain.kernels.shared.philox import four_words
from hoptrain.kernels.shared.weighted import most_attempts

_AHEAD = 32

_COLUMN, _LANE, _LANE_BEGIN, _LANE_DEGREE, _LANE_VERTEX = 0, 1, 2, 3, 4
"""Row indices in ``lanes``. A lane is a destination that draws edges.

For each destination: the beginning of its column; and its lane, or ``-1 - degree`` if all edges with positive weight are taken. For each
lane: the beginning of the column, the degree, and the node.
"""
_SCALE = 2147483648.0
"""Integer that represents the largest weight not drawn yet. Until it is drawn, weights smaller by more than a factor of 2**31 count as 0."""


class WeightedColumns(NamedTuple):
    """The CSC arrays of the graph with weights, and the alias tables of its columns."""

    indptr: Any
    """(V+1,) offsets of the columns."""
    indices: Any
    """(E,) sources of the edges."""
    threshold: Any
    """(E,) uint32 thresholds of the alias tables, see ``hoptrain.kernels.cpu.alias``."""
    alias: Any
    """(E,) int32 aliases of the alias tables, see ``hoptrain.kernels.cpu.alias``."""
    weights: Any
    """(E,) float32 or float64 edge weights."""
    positive: Any
    """(V,) int32 number of edges of each column with positive weight."""


@cpu_kernel
def count_positive(indptr, weights, positive):
    """Fill ``positive`` (V,) int32 with the number of edges of each column whose weight is not 0."""
    for v in range(len(positive)):
        count = 0
        for j in range(indptr[v], indptr[v + 1]):
            count += 1 if weights[j] > 0 else 0
        positive[v] = count


@cpu_kernel
def lane_attempts(fanout):
    """Return the number of draws with replacement made in all lanes at once. It is small for shares of the degree, which differ between nodes."""
    number = max(fanout, 0)
    return number + number // 2 + 2


@cpu_kernel
def count_edges(columns, nodes, first, last, rule):
    """Return the total number of edges that a hop draws into the destinations ``nodes[first:last]``."""
    positive, fanout = columns.positive, rule.fanout
    total = 0
    for i in range(first, last):
        prefetch(positive, nodes[unsigned(min(i + _AHEAD, last - 1))])
        total += num_draws(np.int64(positive[unsigned(nodes[i])]), fanout, False)
    return total


@cpu_kernel
def draw_hop(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """Draw edges into the destinations ``nodes[first:last]``; ``edges`` already holds ``num_edges``. Return the number of edges."""
    indptr, indices, edge_ids, out_indices = columns.indptr, columns.indices, edges.edge_ids, edges.indices
    chunk = scratch.offsets.shape[1]
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        for i in range(end, min(end + chunk, last)):
            prefetch_many(indptr, np.int64(nodes[i]))
        num_lanes = _locate(indptr, columns.positive, nodes, begin, end, rule.fanout, scratch.lanes)
        if num_lanes:
            _draw_lanes(columns, num_lanes, rule.fanout, address, scratch)
        after = _place(columns, nodes, begin, end, rule.fanout, address, scratch, edges, num_edges)
        for j in places(num_edges, after):
            out_indices[j] = indices[unsigned(edge_ids[j])]
        num_edges = after
    return num_edges


@cpu_kernel
def _draw_lanes(columns, num_lanes, fanout, address, scratch):
    lanes, words = scratch.lanes, scratch.words
    attempts = lane_attempts(fanout)
    groups = (2 * attempts + 3) // 4
    random_words(lanes[_LANE_VERTEX], num_lanes, groups, address.seed, address.epoch, address.batch, address.hop, words)
    weighted_offsets(words, lanes[_LANE_BEGIN], lanes[_LANE_DEGREE], num_lanes, attempts, columns.threshold, columns.alias, scratch.offsets)


@cpu_kernel
def _place(columns, nodes, begin, end, fanout, address, scratch, edges, num_edges):
    """Write the edge ids of a chunk's edges, and prefetch their neighbours. Return the number of edges."""
    lanes, offsets, attempts = scratch.lanes, scratch.offsets, lane_attempts(fanout)
    indices, weights, edge_ids, out_indptr = columns.indices, columns.weights, edges.edge_ids, edges.indptr
    positive = columns.positive
    for i in range(begin, end):
        column, lane = lanes[_COLUMN, i - begin], lanes[_LANE, i - begin]
        start = num_edges
        if lane >= 0:
            count = num_draws(np.int64(positive[unsigned(nodes[i])]), fanout, False)
            num_edges = _leave_out_repeats(offsets, lane, column, attempts, start, start + count, edge_ids)
            if num_edges < start + count:
                degree = lanes[_LANE_DEGREE, lane]
                num_edges = _draw_on(columns, np.uint64(nodes[i]), column, degree, attempts, count, address, start, num_edges, edge_ids)
        else:
            for position in places(column, column - 1 - lane):
                if weights[position] > 0:
                    edge_ids[unsigned(num_edges)] = position
                    num_edges += 1
        for j in places(start, num_edges):
            prefetch_many(indices, edge_ids[j])
        out_indptr[i + 1] = num_edges
    return num_edges


@cpu_kernel
def _locate(indptr, positive, nodes, begin, end, fanout, lanes):
    """Find the columns of a chunk, and assign a lane to each destination that draws. Return the number of lanes."""
    num_lanes = 0
    for i in range(begin, end):
        vertex = np.int64(nodes[i])
        column = np.int64(indptr[unsigned(vertex)])
        degree = np.int64(indptr[unsigned(vertex + 1)]) - column
        draws = not takes_all(np.int64(positive[unsigned(vertex)]), fanout, False)
        entry, lane = unsigned(i - begin), unsigned(num_lanes)
        lanes[_COLUMN, entry] = column
        lanes[_LANE, entry] = num_lanes if draws else -1 - degree
        lanes[_LANE_BEGIN, lane] = column
        lanes[_LANE_DEGREE, lane] = degree
        lanes[_LANE_VERTEX, lane] = vertex
        num_lanes += 1 if draws else 0
    return num_lanes


@cpu_kernel
def _stands_in(position, edge_ids, first, last):
    found = False
    for j in places(first, last):
        found |= edge_ids[j] == position
    return found


@cpu_kernel
def _leave_out_repeats(offsets, lane, column, attempts, start, last, edge_ids):
    """Write the distinct draws of a lane to ``edge_ids[start:last]``, and return the position after the last one written."""
    num = start
    for attempt in places(0, attempts):
        position = column + offsets[attempt, unsigned(lane)]
        if not _stands_in(position, edge_ids, start, num):
            edge_ids[unsigned(num)] = position
            num += 1
            if num == last:
                break
    return num


@cpu_kernel
def _draw_on(columns, vertex, column, degree, attempts, count, address, start, num, edge_ids):
    """Complete the ``count`` draws of a node, whose first ``attempts`` attempts gave ``edge_ids[start:num]``. Return the position after the last draw."""
    threshold, alias, weights = columns.threshold, columns.alias, columns.weights
    seed, epoch, batch, hop = address
    most = most_attempts(count)
    for attempt in range(attempts, most):
        words = four_words(seed, epoch, batch, hop, vertex, np.uint64(attempt >> 1))
        choice, keep = (words[2], words[3]) if attempt & 1 else (words[0], words[1])
        offset = bounded(choice, degree)
        position = column + alias_offset(offset, keep, threshold[column + offset], np.int64(alias[column + offset]))
        if not _stands_in(position, edge_ids, start, num):
            edge_ids[num] = position
            num += 1
            if num == start + count:
                return num
    for draw in range(num - start, count):
        high, low, _, _ = four_words(seed, epoch, batch, hop, vertex, np.uint64((most >> 1) + draw))
        edge_ids[num] = _draw_from_rest(weights, column, degree, high, low, edge_ids, start, num)
        num += 1
    return num


@cpu_kernel
def _draw_from_rest(weights, column, degree, high, low, edge_ids, start, num):
    """Draw an edge that is not in ``edge_ids[start:num]`` by weight, and return its CSC position. At least one such edge has positive weight."""
    largest = 0.0
    for position in range(column, column + degree):
        if weights[position] > largest and not _stands_in(position, edge_ids, start, num):
            largest = np.float64(weights[position])
    total = np.uint64(0)
    for position in range(column, column + degree):
        if not _stands_in(position, edge_ids, start, num):
            total += _integer(weights[position], largest)
    rest = bounded64(high, low, total)
    for position in range(column, column + degree):
        if not _stands_in(position, edge_ids, start, num):
            share = _integer(weights[position], largest)
            if rest < share:
                break
            rest -= share
    return position


@cpu_kernel
def _integer(weight, largest):
    return np.uint64(np.float64(weight) / largest * _SCALE)
