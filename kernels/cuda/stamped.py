"""Local ids in order of first appearance, from a table a batch that bulk after bulk uses without clearing it.

A node has a *place* in the table, and every place keeps the smallest number that asked for its node: the local id if it is known, else
``known`` + the place of the node's first edge. A bulk's numbers stand there added to the bulk's ``start``, and each bulk starts lower than the
one before by its ``span``, which is above all numbers that it has. So whatever earlier bulks left behind is ``start`` + ``span`` or more, like
an empty entry, and nothing is cleared in between.

*Direct* tables have an entry for every node, whose place is the node itself. They are for graphs of so few nodes that the tables of the
batches that run at once stay in the second-level cache. *Packed* ones are hash tables with linear probing of words of 64 bits, the node in the
upper half and the number in the lower one: one compare-and-swap takes a word that no node of the bulk has, and one minimum lowers its number.
The place is that of the lower half among halves, so that all but the asking is the same for both kinds.

Who is first is marked, counted and numbered tile by tile, as in ``scan``: an edge holds its node's place meanwhile, the first one to a new
node the place's complement, which is negative, so that no other array is needed and each edge is written by its own thread alone.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.relabel import hash_of
from hoptrain.kernels.cuda.scan import block_scan, num_tiles, scan_sums
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.temporal import key_in, tree_of, vertex_of

EMPTY = np.iinfo(np.int32).max
"""What a new table is filled with: above all numbers."""
FEW_PROBES = 128
"""Words that are looked at for a node where a table may be too small. Tables of a million words have runs that long where three quarters are taken."""
_LOWER, _B32 = 0xFFFFFFFF, 32
_DIRECT = -1


class Words(NamedTuple):
    """What a packed table has besides.

    Attributes:
        words: (K, S) int64: the memory of the table's entries, (K, 2 S).
        part_bits: log2 of the words of a part. Nodes that are nodes in trees (``hoptrain.kernels.shared.temporal``) have a part for each tree.
        span: of the bulk.
        most_probes: after so many words a node is given up; those of a part where there is room for all.
        unplaced: (K,) int64, 1 if a node was given up: all that the bulk finds is in bounds, and worth nothing.
    """

    words: Any
    part_bits: int
    span: int
    most_probes: int
    unplaced: Any


class Table(NamedTuple):
    """A table for each batch.

    Attributes:
        start: (K,) int64; ``start`` + ``span`` is at most ``EMPTY``.
        entries: (K, V) int32 of a direct table, or (K, 2 S) of a packed one.
        packed: of a packed one.
    """

    start: Any
    entries: Any
    packed: Words | None = None


def enter(launch, source, count, capacity, table, nodes):
    """Enter the nodes ``source[b, :count[b]]`` with their places there as local ids, and copy them to ``nodes``.

    Args:
        launch: of the bulk.
        source: (K, N) nodes, int32 for a packed table; or keys of nodes in trees.
        count: (K,) int64, at most ``capacity``.
        capacity: the most of a batch.
        table: ``Table`` without nodes.
        nodes: (K, N) written; may be ``source``.
    """
    if table.packed is None:
        launch.rows(enter_direct, capacity, source, count, *table[:2], nodes)
    else:
        launch.rows(enter_packed, capacity, source, count, table.start, *table.packed, nodes)


def find_repeated_stamped(launch, nodes, count, capacity, table, repeated):
    """Lower ``repeated`` (K,) int64 to the first place whose node stands before it as well; arguments as for ``enter``, which was called."""
    if table.packed is None:
        launch.rows(find_repeated_direct, capacity, nodes, count, *table[:2], repeated)
    else:
        launch.rows(find_repeated_packed, capacity, nodes, count, table.start, *table.packed[:4], repeated)


def relabel_stamped(launch, neighbors, nodes, capacity, begin, end, known, table, sums, num_before, num_after):
    """Turn the nodes ``neighbors[b, begin[b]:end[b]]`` into local ids, in place, and append new ones to ``nodes``.

    Args:
        launch: of the bulk.
        neighbors: (K, M) nodes, or keys, in, local ids out; nodes of int32 for a packed table.
        nodes: (K, N) nodes by local id, with room for the new ones.
        capacity: the most edges of a batch.
        begin: (K,) int64.
        end: (K,) int64.
        known: not below any local id that there is or will be; ``known`` + M is at most the bulk's ``span``.
        table: ``Table`` that holds the known nodes.
        sums: scratch of a scan over M items.
        num_before: (K,) int64 known nodes.
        num_after: (K,) int64, written.
    """
    edges, held, shared_bytes = (neighbors, begin, end), table[:2], launch.thresholds.scan_bytes
    if table.packed is None:
        launch.batch_by_batch(ask_direct, capacity, *edges, known, *held)
    else:
        launch.batch_by_batch(ask_packed, capacity, *edges, known, table.start, *table.packed)
    launch.batch_by_batch(mark_tiles, capacity, *edges, known, *held, sums, shared_bytes=shared_bytes)
    launch.one_block_each(scan_sums, begin, end, num_before, sums, num_after, shared_bytes=shared_bytes)
    launch.batch_by_batch(
        number_tiles, capacity, *edges, *held, table.packed.part_bits if table.packed else _DIRECT, sums, nodes, shared_bytes=shared_bytes
    )
    launch.batch_by_batch(read_entries, capacity, *edges, *held)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int32[:, ::1], ID[:, ::1])")
def enter_direct(source, count, start, entries, nodes):
    """Enter nodes into a direct table, see ``enter``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = source[b, i]
        nodes[b, i] = vertex
        cuda.atomic.min(entries, (b, vertex), start[b] + i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int32[:, ::1], int64[::1])")
def find_repeated_direct(nodes, count, start, entries, repeated):
    """Lower ``repeated``. ``enter_direct`` has run."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        if entries[b, nodes[b, i]] != start[b] + i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1])")
def ask_direct(neighbors, begin, end, known, start, entries):
    """Let every edge ask for its node."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex, number = neighbors[b, e], start[b] + known + e
        if entries[b, vertex] > number:  # an old entry read here is a larger one: it costs an atomic and changes nothing
            cuda.atomic.min(entries, (b, vertex), number)


@device_function
def ask_word(words, part_bits, b, node, number, stale, most_probes):
    """The word of a node, or key, in row ``b``, taken for it if it had none, with its number lowered to ``number``.

    Numbers from ``stale`` on are of earlier bulks. If ``most_probes`` words are all other nodes', the complement of the last of them.
    """
    vertex, begin, mask = vertex_of(node), tree_of(node) << part_bits, (1 << part_bits) - 1
    slot, mine = begin + (hash_of(vertex) & mask), vertex << _B32 | number
    for _ in range(most_probes):
        word = words[b, slot]  # an old one read here is stale, or larger: one of the atomics settles it
        while (word & _LOWER) >= stale:
            found = cuda.atomic.cas(words, (b, slot), word, mine)
            if found == word:
                return slot
            word = found
        if word >> _B32 == vertex:
            if word > mine:
                cuda.atomic.min(words, (b, slot), mine)
            return slot
        slot = begin + ((slot + 1) & mask)
    return ~(begin + ((slot - 1) & mask))


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64, int64, int64, int64[::1], ID[:, ::1])")
def enter_packed(source, count, start, words, part_bits, span, most_probes, unplaced, nodes):
    """Enter nodes into a packed table, see ``enter``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = source[b, i]
        nodes[b, i] = vertex
        if ask_word(words, part_bits, b, vertex, start[b] + i, start[b] + span, most_probes) < 0:
            cuda.atomic.max(unplaced, b, 1)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64, int64, int64, int64[::1])")
def find_repeated_packed(nodes, count, start, words, part_bits, span, most_probes, repeated):
    """Lower ``repeated``. ``enter_packed`` has run; what it did not place is passed over."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = ask_word(words, part_bits, b, nodes[b, i], start[b] + i, start[b] + span, most_probes)
        if slot >= 0 and words[b, slot] & _LOWER != start[b] + i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[:, ::1], int64, int64, int64, int64[::1])")
def ask_packed(neighbors, begin, end, known, start, words, part_bits, span, most_probes, unplaced):
    """Let every edge ask for its node, and put the node's place there instead."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = ask_word(words, part_bits, b, neighbors[b, e], start[b] + known + e, start[b] + span, most_probes)
        if slot < 0:
            slot = ~slot  # another node's, which has a local id
            cuda.atomic.max(unplaced, b, 1)
        neighbors[b, e] = 2 * slot


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1], int64[:, ::1])")
def mark_tiles(neighbors, begin, end, known, start, entries, sums):
    """Complement the places of edges whose own number won; how many of a tile did goes to ``sums``."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        e = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        is_first = 0
        if e < end[b]:
            place = neighbors[b, e]
            if entries[b, place] == start[b] + known + e:
                is_first = 1
                neighbors[b, e] = ~place
        total = block_scan(buffer, is_first)
        if cuda.threadIdx.x == cuda.blockDim.x - 1:
            sums[b, tile] = total
        cuda.syncthreads()


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1], int64, int64[:, ::1], ID[:, ::1])")
def number_tiles(neighbors, begin, end, start, entries, part_bits, sums, nodes):
    """Give new nodes their local ids; ``sums`` are scanned and have those of the tiles' first ones."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for tile in range(cuda.blockIdx.x, num_tiles(begin[b], end[b]), cuda.gridDim.x):
        e = begin[b] + tile * cuda.blockDim.x + cuda.threadIdx.x
        marked = np.int64(neighbors[b, e]) if e < end[b] else np.int64(0)
        is_first = 1 if marked < 0 else 0
        rank = block_scan(buffer, is_first)
        if is_first:
            place, local = ~marked, sums[b, tile] + rank - 1
            nodes[b, local] = place if part_bits == _DIRECT else key_in(place >> (part_bits + 1), entries[b, place + 1])
            entries[b, place] = start[b] + local
        cuda.syncthreads()


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1])")
def read_entries(neighbors, begin, end, start, entries):
    """The local id of every edge's source."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        place = np.int64(neighbors[b, e])
        neighbors[b, e] = entries[b, ~place if place < 0 else place] - start[b]
