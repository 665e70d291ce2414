"""ShaDow on the CPU: a small node set for each seed, and the disjoint union of the subgraphs that the sets induce.

Shapes: B seeds; the set of a seed contains it and up to R - 1 other nodes; S nodes in all sets together, with repetitions. ``nodes`` (S,) holds the
seeds first, then the other nodes of each set: those of seed i are ``nodes[B + begins[i] : B + begins[i + 1]]``.

A set is built in a hash table of its own, which stays in the first-level cache. A *place* is the local id of a node within a set; the seed has
place 0.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise.neighbor import draw_hop
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.cpu.relabel import RelabelView, enter, relabel
from hoptrain.kernels.cpu.subgraphs.induced import ask_ahead, clear_bits, is_rare, pick, set_bits

MASS = 1 << 40
"""Fixed-point value of probability 1 in the push algorithm: the number of walks that start at a seed."""
ALPHA_BITS = 16
_AHEAD = 4
_PLACE_BITS = 20
"""Number of bits of a place, the local id of a node within a seed's set."""
MOST_PLACES = 1 << _PLACE_BITS
_LOW_PLACE = np.uint64((1 << 20) - 1)


class Sets(NamedTuple):
    """The node sets of all seeds."""

    nodes: Any
    """(S,) global ids of the nodes of all sets, the seeds first; the array has capacity for more nodes."""
    begins: Any
    """(B+1,) int64 offsets of the sets in the nodes after the B seeds; a set's seed is not counted."""


class Own(NamedTuple):
    """Scratch memory for the set of one seed."""

    members: Any
    """(R+1,) global id of each node of the set, by its place (local id)."""
    entries: Any
    """(2**slot_bits,) uint32 hash table of places, see ``hoptrain.kernels.cpu.relabel``."""
    slot_bits: int
    id_bits: int
    turn: Any
    """(1,) int64 last used stamp. Every set increments it; the table is cleared when stamps run out."""


class Push(NamedTuple):
    """Scratch memory for the push algorithm on one seed; R is the maximum number of nodes that it can reach."""

    residue: Any
    """(R+1,) int64 number of walks that are currently at each node, by the node's place in the set."""
    score: Any
    """(R+1,) int64 number of walks that ended at each node, by the node's place in the set."""
    queue: Any
    """(R+1,) int32 ring buffer of the places of nodes to push."""
    least: Any
    """(R+1,) int64 threshold of each node of the set, by its place: the node is pushed once this many walks are at it."""
    keys: Any
    """(R+1,) uint64 sort keys of the places."""
    found: Any
    """(1,) scratch memory for a single global id or place."""


@cpu_kernel
def next_table(own):
    """Return the hash table, emptied by a new stamp."""
    turn = own.turn
    turn[0] += 1
    if turn[0] >= 1 << (32 - own.id_bits):
        own.entries[:] = 0
        turn[0] = 1
    return RelabelView(own.entries, own.slot_bits, own.id_bits, np.uint32(turn[0] << own.id_bits))


@cpu_kernel
def neighbor_sets(columns, num_seeds, depth, rule, address, scratch, edges, own, sets):
    """Fill the sets with the nodes that neighbour sampling reaches in ``depth`` hops. Each hop expands the nodes that the hop before found.

    For ``scratch`` and ``edges`` (capacity for one hop of a set) see ``hoptrain.kernels.cpu.nodewise.neighbor``. Random numbers are addressed by hop and
    node.
    """
    nodes, begins, members, indptr = sets.nodes, sets.begins, own.members, columns.indptr
    begins[0] = 0
    for i in range(num_seeds):
        prefetch(indptr, np.int64(nodes[min(i + _AHEAD, num_seeds - 1)]))
        table = next_table(own)
        members[0] = nodes[i]
        enter(members, 1, table)
        first, size = 0, 1
        for hop in range(depth):
            at_hop = HopAddress(address.seed, address.epoch, address.batch, np.uint64(hop))
            num_edges = draw_hop(columns, members, first, size, rule, at_hop, scratch, edges, 0)
            first, size = size, relabel(edges.indices, 0, num_edges, table, members, size)
        _keep(members, size, num_seeds, i, nodes, begins)


@cpu_kernel
def _keep(members, size, num_seeds, i, nodes, begins):
    """Append the nodes of seed i's set, except for the seed, to ``nodes``."""
    begin = num_seeds + begins[i]
    for place in range(1, size):
        nodes[begin + place - 1] = members[place]
    begins[i + 1] = begins[i] + size - 1


@cpu_kernel
def pagerank_sets(indptr, indices, num_seeds, top, alpha, threshold, push, own, sets):
    """Fill each set with its seed and the ``top`` nodes of highest personalised PageRank; ties are broken by order of discovery.

    PageRank is computed by pushing (Andersen, Chung, Lang 2006), exactly, in integers. ``MASS`` walks against the edges start at the seed. At every step the
    share ``alpha`` / 2**16 of the walks ends; at a node without in-edges all walks end. A node is pushed while at least ``threshold`` walks per in-edge are
    there. At the end, the share ``alpha`` / 2**16 of the walks that remain at a node counts as ended there, too.
    """
    nodes, begins, members, keys, score, residue = sets.nodes, sets.begins, own.members, push.keys, push.score, push.residue
    begins[0] = 0
    for i in range(num_seeds):
        size = _push_all(indptr, indices, nodes[i], alpha, threshold, push, own)
        num_keys = 0
        for place in range(1, size):
            ended = score[place] + ((residue[place] * alpha) >> ALPHA_BITS)
            if ended > 0:
                keys[num_keys] = (np.uint64(MASS - ended) << np.uint64(_PLACE_BITS)) | np.uint64(place)
                num_keys += 1
        keys[:num_keys].sort()
        begin, chosen = num_seeds + begins[i], min(top, num_keys)
        for k in range(chosen):
            nodes[begin + k] = members[np.int64(keys[k] & _LOW_PLACE)]
        begins[i + 1] = begins[i] + chosen


@cpu_kernel
def _push_all(indptr, indices, start, alpha, threshold, push, own):
    """Push until every node is below its threshold of walks, and return the number of reached nodes."""
    members, residue, score, queue, least, found = own.members, push.residue, push.score, push.queue, push.least, push.found
    table, capacity, size = next_table(own), len(push.queue), 0
    found[0] = start
    size = _reach(indptr, threshold, table, members, 0, push)
    residue[0], queue[0] = MASS, 0
    head, waiting = 0, 1 if least[0] <= MASS else 0
    while waiting > 0:
        place = np.int64(queue[head])
        head = head + 1 if head + 1 < capacity else 0
        waiting -= 1
        vertex = np.int64(members[place])
        begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        here = residue[place]
        ended = here if begin == end else (here * alpha) >> ALPHA_BITS
        share = (here - ended) // max(end - begin, 1)
        score[place] += ended
        residue[place] = here - ended - share * (end - begin)
        for j in range(begin, end):
            found[0] = indices[j]
            size = _reach(indptr, threshold, table, members, size, push)
            other = np.int64(found[0])
            before = residue[other]
            residue[other] = before + share
            if before < least[other] <= before + share:
                tail = head + waiting
                queue[tail if tail < capacity else tail - capacity] = other
                waiting += 1
    return size


@cpu_kernel
def _reach(indptr, threshold, table, members, size, push):
    """Replace the node ``push.found[0]`` by its index in the set; a new node starts without walks. Return the number of nodes in the set."""
    found = push.found
    vertex = np.int64(found[0])
    after = relabel(found, 0, 1, table, members, size)
    if after > size:
        push.residue[size], push.score[size] = 0, 0
        push.least[size] = threshold * max(np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex]), 1)
    return after


@cpu_kernel
def induce_union(indptr, indices, num_seeds, bits, own, sets, out_indptr, out_indices, out_edge_ids):
    """Write the edges within each set as one graph of S nodes: ``out_indptr`` (S+1,), ``out_indices`` (local sources) and ``out_edge_ids``.

    Capacities and ``bits`` are those of ``hoptrain.kernels.cpu.subgraphs.induced.induce``. Returns the number of edges. As the seeds are numbered first,
    a first pass over the sets writes the columns of the seeds, and a second pass the columns of the other nodes.
    """
    nodes, begins, members = sets.nodes, sets.begins, own.members
    bits[:] = np.uint64(0)
    num_edges, row, looked_at = 0, 0, 0
    out_indptr[0] = 0
    for is_second in range(2):
        for i in range(num_seeds):
            table = next_table(own)
            size = _load(num_seeds, i, nodes, begins, members, table)
            set_bits(bits, members, 0, size)
            before = num_edges
            for place in range(1 if is_second else 0, size if is_second else 1):
                if is_second:
                    ask_ahead(indptr, indices, members, place, size)
                else:
                    ask_ahead(indptr, indices, nodes, i, num_seeds)
                vertex = np.int64(members[place])
                first, last = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
                rare = is_rare(num_edges, looked_at)
                num_edges = pick(indices, first, last, bits, num_edges, rare, out_indices, out_edge_ids)
                looked_at += last - first
                row += 1
                out_indptr[row] = num_edges
            clear_bits(bits, members, 0, size)
            relabel(out_indices, before, num_edges, table, members, size)
            shift = num_seeds + begins[i] - 1
            for j in range(before, num_edges):
                out_indices[j] = out_indices[j] + shift if out_indices[j] else i
    return num_edges


@cpu_kernel
def _load(num_seeds, i, nodes, begins, members, table):
    """Enter the set of seed i into the table, and return its size."""
    begin, size = num_seeds + begins[i], begins[i + 1] - begins[i] + 1
    members[0] = nodes[i]
    for place in range(1, size):
        members[place] = nodes[begin + place - 1]
    enter(members, size, table)
    return size
