"""Relabelling to local ids in order of first appearance, by a table for each batch that is not cleared between bulks.

A node has a *place* in the table. The entry there is the smallest number proposed for the node: the local id if it is known, otherwise ``known`` + the
position of the node's first edge. The numbers of a bulk are stored with the bulk's ``start`` added. Each bulk starts lower than the one before by
its ``span``, which is above all its numbers. So all entries of earlier bulks are ``start`` + ``span`` or more, like an empty entry, and the table
need not be cleared.

*Direct* tables have an entry for every node, whose place is the global id. They are for graphs so small that the tables of all batches that run at
once stay in the second-level cache. *Packed* tables are hash tables with linear probing. Their words of 64 bits hold the node in the upper half and
the number in the lower half: one compare-and-swap claims a word that no node of the bulk uses, and one atomic minimum lowers its number. The
place is the index of the lower half among all halves, so that everything except for the insertion is the same for both kinds.

The first edges of new nodes are marked, counted and numbered tile by tile, as in ``scan``. Meanwhile the entry of an edge holds its node's place; the
first edge of a new node holds the complement of the place, which is negative. So no further array is needed, and each edge is written only by its
own thread.
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
"""Initial value of table entries. It is larger than every number that a bulk of batches writes."""
FEW_PROBES = 128
"""Maximum number of probes for a node in a table that may be too small. A table with a million entries that is three quarters full has runs of this length."""
_LOWER, _B32 = 0xFFFFFFFF, 32
_DIRECT = -1


class PackedFields(NamedTuple):
    """The fields that only a packed relabelling table has.

    Attributes:
        words: (K, S) int64 view of the memory of the table's entries, (K, 2 S) int32.
        part_bits: Log2 of the number of words of a part. Keys of temporal batches (``hoptrain.kernels.shared.temporal``) have a part for each tree.
        span: Span of the bulk: larger than every number that the bulk proposes.
        most_probes: Maximum number of probes for a node; the size of a part if the table is large enough for all nodes.
        unplaced: (K,) int64, set to 1 if a node could not be placed. All results of the bulk are then within bounds, but wrong.
    """

    words: Any
    part_bits: int
    span: int
    most_probes: int
    unplaced: Any


class StampedTable(NamedTuple):
    """A relabelling table for each batch.

    Attributes:
        start: (K,) int64 start of the bulk's numbers; ``start`` + ``span`` is at most ``EMPTY``.
        entries: (K, V) int32 entries of a direct table, or (K, 2 S) int32 entries of a packed table.
        packed: Additional fields of a packed table; None for a direct table.
    """

    start: Any
    entries: Any
    packed: PackedFields | None = None


def enter(launch, source, count, capacity, table, nodes):
    """Enter the nodes ``source[b, :count[b]]`` with their positions as local ids, and copy them to ``nodes``.

    Args:
        launch: Launcher of the bulk.
        source: (K, N) nodes to enter: global ids (int32 for a packed table), or keys (tree, node) of temporal batches.
        count: (K,) int64 number of nodes, at most ``capacity``.
        capacity: Maximum number of nodes of a batch.
        table: ``StampedTable`` that contains no node of this bulk yet.
        nodes: (K, N), receives the nodes; may be ``source``.
    """
    if table.packed is None:
        launch.rows(enter_direct, capacity, source, count, *table[:2], nodes)
    else:
        launch.rows(enter_packed, capacity, source, count, table.start, *table.packed, nodes)


def find_repeated_stamped(launch, nodes, count, capacity, table, repeated):
    """Lower ``repeated`` (K,) int64 to the position of the first repeated node of each batch. Call ``enter`` first, with the same arguments."""
    if table.packed is None:
        launch.rows(find_repeated_direct, capacity, nodes, count, *table[:2], repeated)
    else:
        launch.rows(find_repeated_packed, capacity, nodes, count, table.start, *table.packed[:4], repeated)


def relabel_stamped(launch, neighbors, nodes, capacity, begin, end, known, table, sums, num_before, num_after):
    """Replace the global ids ``neighbors[b, begin[b]:end[b]]`` by local ids, in place, and append new nodes to ``nodes``.

    Args:
        launch: Launcher of the bulk.
        neighbors: (K, M) global ids or keys, replaced by local ids; global ids are int32 for a packed table.
        nodes: (K, N) global ids by local id, with capacity for the new nodes.
        capacity: Maximum number of edges of a batch.
        begin: (K,) int64 first edge of each batch.
        end: (K,) int64 end of each batch's edges.
        known: Upper bound of all local ids, also of the new nodes; ``known`` + M is at most the bulk's ``span``.
        table: ``StampedTable`` that holds the known nodes.
        sums: Scratch memory of a scan over M items.
        num_before: (K,) int64 number of known nodes.
        num_after: (K,) int64, receives the number of nodes after the call.
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
    """Lower ``repeated`` for a direct table, see ``find_repeated_stamped``. Run ``enter_direct`` first."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        if entries[b, nodes[b, i]] != start[b] + i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1])")
def ask_direct(neighbors, begin, end, known, start, entries):
    """Propose a number for the source of every edge, by a direct table."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex, number = neighbors[b, e], start[b] + known + e
        if entries[b, vertex] > number:  # a stale read is too large, so it costs an unneeded atomic and changes nothing
            cuda.atomic.min(entries, (b, vertex), number)


@device_function
def ask_word(words, part_bits, b, node, number, stale, most_probes):
    """Return the index of a node's word in row ``b``, after lowering its number to ``number``. If the node has no word, a free one is claimed.

    Numbers from ``stale`` on belong to earlier bulks. If ``most_probes`` words all belong to other nodes, it returns the complement of the last index.
    """
    vertex, begin, mask = vertex_of(node), tree_of(node) << part_bits, (1 << part_bits) - 1
    slot, mine = begin + (hash_of(vertex) & mask), vertex << _B32 | number
    for _ in range(most_probes):
        word = words[b, slot]  # an outdated read is stale or too large; one of the atomics below corrects it
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
    """Lower ``repeated`` for a packed table, see ``find_repeated_stamped``. Run ``enter_packed`` first; nodes that it could not place are skipped."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = ask_word(words, part_bits, b, nodes[b, i], start[b] + i, start[b] + span, most_probes)
        if slot >= 0 and words[b, slot] & _LOWER != start[b] + i:
            cuda.atomic.min(repeated, b, i)


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[:, ::1], int64, int64, int64, int64[::1])")
def ask_packed(neighbors, begin, end, known, start, words, part_bits, span, most_probes, unplaced):
    """Propose a number for the source of every edge, by a packed table, and replace the source by its place."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        slot = ask_word(words, part_bits, b, neighbors[b, e], start[b] + known + e, start[b] + span, most_probes)
        if slot < 0:
            slot = ~slot  # this word is of another node, whose local id keeps later reads within bounds
            cuda.atomic.max(unplaced, b, 1)
        neighbors[b, e] = 2 * slot


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1], int64[:, ::1])")
def mark_tiles(neighbors, begin, end, known, start, entries, sums):
    """Mark the edges whose own number is in the table, by complementing their places. Write the number of marked edges of each tile to ``sums``."""
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
    """Assign local ids to new nodes; the scanned ``sums`` hold the first new local id of each tile."""
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
    """Replace the place of every edge's source by its local id."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(begin[b] + thread, end[b], cuda.gridDim.x * cuda.blockDim.x):
        place = np.int64(neighbors[b, e])
        neighbors[b, e] = entries[b, ~place if place < 0 else place] - start[b]
