"""Layer-wise sampling on the CPU: nodes are drawn for all destinations of a layer together, by integer keys.

Shapes: V nodes and E edges of the graph, N destinations, m candidates, t draws. Global ids are nodes of the graph, local ids number the destinations
and the drawn nodes, edge ids are CSC positions.

There are two passes over the destinations' columns. The first sums the candidates' keys (``sum_shares``); if the distribution does not depend on the
destinations, it is done once for the graph. The second (``connect``) finds the edges from drawn nodes. These are few, so a small bit filter, which
stays in the first-level cache, rejects nearly all other edges before a table lookup.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.relabel import find, home, relabel
from hoptrain.kernels.shared.draws import bounded64
from hoptrain.kernels.shared.importance import pieces_of
from hoptrain.kernels.shared.layerwise import destination_share, source_key

CHUNK = 512
"""Number of edges that are relabelled at a time. Table entries are prefetched while the edges are copied."""
_AHEAD = 16
_LANES = 16
"""Number of binary searches that advance together, one step at a time, so that their memory reads overlap."""
_B6 = np.uint64(6)
_BIT = np.uint64(1)
_LOW_BITS = np.uint64(63)


class Draws(NamedTuple):
    """The drawn nodes, in the order of the draws."""

    vertices: Any
    """(t,) global ids of the drawn nodes; local ids after ``enter_draws``."""
    keys: Any
    """(t,) uint64 keys of the drawn nodes, the integers to which their probabilities are proportional."""


class LayerNodes(NamedTuple):
    """Properties of destinations and drawn nodes by local id, with capacity for N + t."""

    counts: Any
    """(N + t,) int32 number of draws of each node."""
    weights: Any
    """(N + t,) float32 weights of the nodes, count / (t q). A node is drawn count times in t draws; each draw hits it with probability q."""
    places: Any
    """(N + t,) local id of each drawn node in the block; -1 until the block has an edge from the node."""


class LayerEdges(NamedTuple):
    """The edges of the block, with capacity for all in-edges of the destinations and one more."""

    indptr: Any
    edge_ids: Any
    indices: Any
    """Sources of the edges, as local ids in the block."""
    weights: Any
    """float32 weights of the edges: the number of in-edges for which each edge stands."""


@cpu_kernel
def sum_shares(indptr, indices, nodes, num_dst, kind, scale, table, neighbors, shares, candidates, sums):
    """Collect the in-neighbours of ``nodes[:num_dst]`` in ``candidates``, in order of first appearance, and sum their shares in ``sums``.

    ``neighbors`` and ``shares`` (CHUNK,) are scratch memory, ``table`` is empty. Returns the number of candidates.
    """
    entries, slot_bits = table.entries, table.slot_bits
    filled, num_candidates = 0, 0
    for i in range(num_dst):
        _look_ahead(indptr, indices, nodes, i, num_dst)
        position, end = np.int64(indptr[nodes[i]]), np.int64(indptr[nodes[i] + 1])
        share = destination_share(max(end - position, 1), scale, kind)
        while position < end:
            piece = min(end - position, CHUNK - filled)
            begin, into = unsigned(position), unsigned(filled)
            for j in places(0, piece):
                source = indices[begin + j]
                neighbors[into + j] = source
                shares[into + j] = share
                prefetch_many(entries, home(source, slot_bits))
            filled += piece
            position += piece
            if filled == CHUNK:
                num_candidates = _add_shares(neighbors, shares, filled, table, candidates, num_candidates, sums)
                filled = 0
    return _add_shares(neighbors, shares, filled, table, candidates, num_candidates, sums)


@cpu_kernel
def _look_ahead(indptr, indices, nodes, i, num_dst):
    """Prefetch the data of the next destinations: column offsets first, then the beginnings of columns."""
    prefetch_many(indptr, np.int64(nodes[min(i + 2 * _AHEAD, num_dst - 1)]))
    prefetch_many(indices, np.int64(indptr[nodes[min(i + _AHEAD, num_dst - 1)]]))


@cpu_kernel
def _add_shares(neighbors, shares, filled, table, candidates, num_candidates, sums):
    after = relabel(neighbors, 0, filled, table, candidates, num_candidates)
    for j in range(num_candidates, after):
        sums[j] = 0
    for j in places(0, filled):
        sums[unsigned(neighbors[j])] += shares[j]
    return after


@cpu_kernel
def accumulate_keys(indptr, candidates, num_candidates, kind, scores, sums):
    """Replace the candidates' sums of shares by inclusive prefix sums of their keys, in place.

    Keys are multiplied by ``scores`` (V,) uint32; an empty array stands for a score of 1 for every node.
    """
    total = np.uint64(0)
    for j in range(num_candidates):
        ahead = np.int64(candidates[unsigned(min(j + _AHEAD, num_candidates - 1))])
        prefetch_many(indptr, ahead)
        prefetch_many(scores, ahead)
        vertex = np.int64(candidates[j])
        key = source_key(sums[j], np.int64(indptr[unsigned(vertex + 1)]) - np.int64(indptr[unsigned(vertex)]), kind)
        total += key * np.uint64(scores[unsigned(vertex)]) if len(scores) else key
        sums[j] = total


@cpu_kernel
def draw(candidates, prefix, words, draws):
    """Draw candidates with replacement, with probabilities proportional to their keys. Draw j uses words 2 j and 2 j + 1.

    ``prefix`` (m,) are inclusive prefix sums of the candidates' keys, ``words`` (4, t/2) are from ``random_words`` with one lane.
    """
    vertices, keys = draws.vertices, draws.keys
    places, targets = np.empty(_LANES, np.int64), np.empty(_LANES, np.uint64)
    total = prefix[len(prefix) - 1]
    for begin in range(0, len(vertices), _LANES):
        lanes = min(_LANES, len(vertices) - begin)
        for lane in range(lanes):
            j = begin + lane
            targets[lane] = bounded64(words[2 * (j & 1), j >> 1], words[2 * (j & 1) + 1, j >> 1], total)
        _search(prefix, targets, places, lanes)
        for lane in range(lanes):
            found = places[lane]
            vertices[begin + lane] = candidates[found]
            keys[begin + lane] = prefix[found] - prefix[found - 1] if found else prefix[0]


@cpu_kernel
def _search(prefix, targets, places, lanes):
    """Find the first position of ``prefix`` above each target, by branch-free binary searches that advance together."""
    for lane in range(lanes):
        places[lane] = 0
    length = len(prefix)
    while length > 1:
        half = length >> 1
        for lane in range(lanes):
            places[lane] += half if prefix[places[lane] + half - 1] <= targets[lane] else 0
        length -= half


@cpu_kernel
def enter_draws(draws, total, table, nodes, num_dst, known, bits, num_bits):
    """Replace the drawn global ids by local ids after those of the destinations, count the draws, and mark them in the bit filter.

    ``total`` is the sum of all keys, ``bits`` (2**num_bits / 64,) uint64 is the filter. Returns the number of nodes in the table.
    """
    vertices, keys = draws.vertices, draws.keys
    counts, weights, places = known.counts, known.weights, known.places
    bits[:] = 0
    for j in range(len(vertices)):
        slot = unsigned(home(vertices[j], num_bits))
        bits[slot >> _B6] |= _BIT << (slot & _LOW_BITS)
    num_known = relabel(vertices, 0, len(vertices), table, nodes, num_dst)
    for i in range(num_known):
        counts[i] = 0
        places[i] = i if i < num_dst else -1
    for j in range(len(vertices)):
        counts[vertices[j]] += 1
    for j in range(len(vertices)):
        local = vertices[j]
        weights[local] = counts[local] * (np.float64(total) / (np.float64(len(vertices)) * np.float64(keys[j])))
    return num_known


@cpu_kernel
def connect(indptr, indices, nodes, num_dst, table, known, bits, num_bits, arrivals, normalize, edges):
    """Write the edges from drawn nodes to the destinations ``nodes[:num_dst]``, each column in the graph's order.

    Drawn nodes with an edge that are not destinations are appended to ``nodes`` in order of first appearance. Drawn nodes without an edge are
    dropped. ``arrivals`` (t,) is scratch memory. With ``normalize`` the weights of a destination are scaled so that their sum is its degree. Returns
    the numbers of sources and of edges.
    """
    entries, slot_bits = table.entries, table.slot_bits
    edge_ids, out_indptr = edges.edge_ids, edges.indptr
    num_src, num_edges = num_dst, 0
    out_indptr[0] = 0
    for i in range(num_dst):
        _look_ahead(indptr, indices, nodes, i, num_dst)
        begin, end = np.int64(indptr[nodes[i]]), np.int64(indptr[nodes[i] + 1])
        hits = num_edges
        for position in places(begin, end):
            slot = unsigned(home(indices[position], num_bits))
            edge_ids[unsigned(hits)] = position
            hits += np.int64((bits[slot >> _B6] >> (slot & _LOW_BITS)) & _BIT)
        for j in places(num_edges, hits):
            prefetch_many(entries, home(indices[unsigned(edge_ids[j])], slot_bits))
        num_src, after = _keep_drawn(indices, num_edges, hits, table, nodes, known, arrivals, num_dst, num_src, edges)
        if normalize:
            _normalize(edges.weights, num_edges, after, end - begin)
        num_edges = after
        out_indptr[i + 1] = num_edges
    for j in range(num_src - num_dst):
        nodes[num_dst + j] = arrivals[j]
    return num_src, num_edges


@cpu_kernel
def _keep_drawn(indices, num_edges, hits, table, nodes, known, arrivals, num_dst, num_src, edges):
    """Keep the edges among ``edge_ids[num_edges:hits]`` whose sources were drawn. Return the number of sources and the number of edges."""
    entries, slot_bits, id_bits, stamp = table.entries, table.slot_bits, table.id_bits, table.stamp
    counts, weights, sources = known.counts, known.weights, known.places
    edge_ids, out_indices, out_weights = edges.edge_ids, edges.indices, edges.weights
    low = np.uint32((1 << id_bits) - 1)
    for j in places(num_edges, hits):
        position = edge_ids[j]
        vertex = indices[unsigned(position)]
        entry = entries[find(vertex, entries, slot_bits, id_bits, stamp, nodes)]
        local = unsigned(entry & low)
        if (entry & ~low) == stamp and counts[local] > 0:
            if sources[local] < 0:
                sources[local] = num_src
                arrivals[num_src - num_dst] = vertex
                num_src += 1
            kept = unsigned(num_edges)
            edge_ids[kept] = position
            out_indices[kept] = sources[local]
            out_weights[kept] = weights[local]
            num_edges += 1
    return num_src, num_edges


@cpu_kernel
def _normalize(weights, first, last, degree):
    total, number = 0.0, last - first
    pieces = pieces_of(number)
    for piece in range(pieces):
        part = 0.0
        for j in range(first + number * piece // pieces, first + number * (piece + 1) // pieces):
            part += weights[j]
        total += part
    for j in range(first, last):
        weights[j] = weights[j] * (degree / total)


@cpu_kernel
def describe_sources(draws, total, places, num_src, counts, probabilities):
    """Write how often each source of the block was drawn, and its probability in one draw; both are 0 for sources that were not drawn."""
    vertices, keys = draws.vertices, draws.keys
    counts[:num_src] = 0
    probabilities[:num_src] = 0
    for j in range(len(vertices)):
        place = places[vertices[j]]
        counts[place] += 1
        probabilities[place] = np.float64(keys[j]) / np.float64(total)
