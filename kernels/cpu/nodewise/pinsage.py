"""PinSAGE's neighbourhoods on the CPU: short random walks from each destination, and the nodes that they visit most.

Shapes: D destinations of a chunk, W walks of each with at most L visits, T neighbours of each. A visit takes S steps: 1, or the length of a metapath.
Step s of walk w uses word w * L * S + s of the destination's stream. All walks of a chunk make a step before any makes the next one, so that their
reads are in flight together.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.offsets import random_words
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.shared.walk import next_step


class Walks(NamedTuple):
    """The options of the walks and the choice of neighbours."""

    num_walks: int
    """Number of walks W of each destination."""
    length: int
    """Maximum number of visits L of a walk."""
    stop: Any
    """Probability that a walk ends after a visit, as ``uint64`` in units of 1 / 2**32."""
    num_neighbors: int
    """Maximum number of neighbours T of a destination."""
    stride: int
    """Number of steps S between two visits."""
    by_degree: bool
    """True to multiply weights by the destination's degree."""


class PinSAGEScratch(NamedTuple):
    """Scratch memory for a chunk."""

    words: Any
    """(4, ceil(W L S / 4) * D) uint32 random words of the chunk's destinations."""
    lanes: Any
    """(3, D W) int64 state of each active walk: index of the walk in the chunk; its node, or the CSC position of its next step; 1 if it continues."""
    visits: Any
    """(D, W L) int64 global ids of the visited nodes."""
    num_visits: Any
    """(D,) int64 number of visits by the walks of each destination."""


@cpu_kernel
def sample_hop(indptr, indices, nodes, last, walks, address, scratch, edges, num_edges):
    """Find the neighbours of ``nodes[:last]``; ``edges`` is (indptr, sources as global ids, weights). Return the number of edges.

    A weight is the neighbour's share of the visits to all chosen neighbours, multiplied by the destination's degree with ``by_degree``.
    """
    chunk = len(scratch.num_visits)
    groups = (walks.num_walks * walks.length * walks.stride + 3) // 4
    out_indptr, out_sources, weights = edges
    for begin in range(0, last, chunk):
        end = min(begin + chunk, last)
        random_words(nodes[begin:end], end - begin, groups, address.seed, address.epoch, address.batch, address.hop, scratch.words)
        _walk(indptr, indices, nodes[begin:end], walks, scratch)
        for i in range(begin, end):
            visits = scratch.visits[i - begin, : scratch.num_visits[i - begin]]
            degree = indptr[nodes[i] + 1] - indptr[nodes[i]] if walks.by_degree else 1
            num_edges = _take_most_visited(visits, nodes[i], degree, walks.num_neighbors, out_sources, weights, num_edges)
            out_indptr[i + 1] = num_edges
    return num_edges


_WALK, _PLACE, _GOES_ON = 0, 1, 2
"""Row indices in ``PinSAGEScratch.lanes``: the walk's index, its node or next CSC position, and whether it continues."""


@cpu_kernel
def _walk(indptr, indices, roots, walks, scratch):
    words, lanes, visits, num_visits = scratch.words, scratch.lanes, scratch.visits, scratch.num_visits
    num_walks, length, stop, num_roots = walks.num_walks, walks.length * walks.stride, walks.stop, len(roots)
    for walk in range(num_roots * num_walks):
        lanes[_WALK, walk] = walk
        lanes[_PLACE, walk] = roots[walk // num_walks]
    num_visits[:num_roots] = 0
    alive = num_roots * num_walks
    for step in range(length):
        stepping, is_visit = 0, (step + 1) % walks.stride == 0
        for lane in places(0, alive):
            walk, vertex = lanes[_WALK, lane], lanes[_PLACE, lane]
            begin = np.int64(indptr[unsigned(vertex)])
            degree = np.int64(indptr[unsigned(vertex + 1)]) - begin
            if degree > 0:
                draw = walk % num_walks * length + step
                word = words[unsigned(draw & 3), unsigned((draw >> 2) * num_roots + walk // num_walks)]
                offset, goes_on = next_step(word, degree, stop)
                kept = unsigned(stepping)
                lanes[_WALK, kept], lanes[_PLACE, kept], lanes[_GOES_ON, kept] = walk, begin + offset, goes_on or not is_visit
                prefetch_many(indices, begin + offset)
                stepping += 1
        alive = 0
        for lane in places(0, stepping):
            walk, vertex = lanes[_WALK, lane], np.int64(indices[unsigned(lanes[_PLACE, lane])])
            root = unsigned(walk // num_walks)
            if is_visit:
                visits[root, unsigned(num_visits[root])] = vertex
                num_visits[root] += 1
            if lanes[_GOES_ON, lane]:
                kept = unsigned(alive)
                lanes[_WALK, kept], lanes[_PLACE, kept] = walk, vertex
                prefetch_many(indptr, vertex)
                alive += 1


@cpu_kernel
def _take_most_visited(visits, root, degree, most, out_sources, weights, num_edges):
    """Append the nodes with the most visits, except for the root, and their weights; ties are broken by id. Return the number of edges."""
    visits.sort()
    num, begin = 0, 0
    while begin < len(visits):
        vertex, end = visits[begin], begin + 1
        while end < len(visits) and visits[end] == vertex:
            end += 1
        if vertex != root:
            num = _insert(vertex, end - begin, num, most, out_sources[num_edges:], weights[num_edges:])
        begin = end
    total = 0.0
    for j in range(num_edges, num_edges + num):
        total += weights[j]
    for j in range(num_edges, num_edges + num):
        weights[j] = np.float32(np.float64(weights[j]) * np.float64(degree) / total)
    return num_edges + num


@cpu_kernel
def _insert(vertex, count, num, most, vertices, counts):
    """Insert a node into a list of at most ``most`` in descending order of counts; equal counts keep their order. Return the new length."""
    if num == most and count <= counts[num - 1]:
        return num
    rank = min(num, most - 1)
    while rank > 0 and counts[rank - 1] < count:
        vertices[rank], counts[rank] = vertices[rank - 1], counts[rank - 1]
        rank -= 1
    vertices[rank], counts[rank] = vertex, count
    return min(num + 1, most)
