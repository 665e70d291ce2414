"""Relabelling of global ids to local ids by a table of stamped entries, which is not cleared between mini-batches.

An entry is a ``uint32``: the mini-batch's stamp in the high bits, a local id in the low ``id_bits``. An entry is valid only if its stamp is the
current one. ``slot_bits`` selects one of two layouts:

* 0: the table has an entry for every node, at its global id.
* otherwise: open addressing over ``2**slot_bits`` entries; the node of an entry is ``nodes[local id]``. This is for graphs whose direct table
  would not fit in the caches.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_U1, _U64 = np.uint64(1), np.uint64(64)
_AHEAD = np.uint64(32)
"""Prefetch distance of table entries, in edges."""


class RelabelView(NamedTuple):
    """A relabelling table at the stamp of one mini-batch."""

    entries: Any
    """(V,) or (2**slot_bits,) uint32 table entries. Each holds a stamp in the high bits and a local id in the low bits."""
    slot_bits: int
    id_bits: int
    stamp: Any
    """``uint32`` stamp of the mini-batch, in the bits above ``id_bits``."""


@cpu_kernel
def home(vertex, slot_bits):
    """Return the first slot to probe for a node: multiplicative hashing (Knuth, TAOCP 3, 6.4), or the node id itself in a direct table."""
    if slot_bits == 0:
        return np.int64(vertex)
    return np.int64((np.uint64(vertex) * _GOLDEN) >> (_U64 - np.uint64(slot_bits)))


@cpu_kernel
def relabel(neighbors, first, last, table, nodes, num_nodes):
    """Replace global ids ``neighbors[first:last]`` by local ids, in place.

    New nodes are appended to ``nodes`` in order of first appearance. ``nodes`` already holds ``num_nodes`` and needs capacity for one more than the
    maximum. Returns the new number of nodes.

    Entries are prefetched some edges ahead, even if the caller has already prefetched them: of many prefetches at once the processor drops
    some. This halved the time while other programs filled the shared cache, and costs nothing otherwise.
    """
    if table.slot_bits == 0:
        return _relabel_direct(neighbors, first, last, table, nodes, num_nodes)
    return _relabel_hashed(neighbors, first, last, table, nodes, num_nodes)


@cpu_kernel
def look_up(neighbors, num, table, nodes):
    """Replace global ids ``neighbors[:num]`` by local ids, in place. The table must contain all of them."""
    entries, slot_bits, id_bits = table.entries, table.slot_bits, table.id_bits
    low = np.uint32((1 << id_bits) - 1)
    if slot_bits == 0:
        for j in places(0, num):
            prefetch(entries, neighbors[min(j + _AHEAD, unsigned(num - 1))])
            neighbors[j] = entries[unsigned(neighbors[j])] & low
    else:
        relabel(neighbors, 0, num, table, nodes, len(nodes))


@cpu_kernel
def _relabel_direct(neighbors, first, last, table, nodes, num_nodes):
    """Relabel by a direct table. The loop has no branch, because new nodes cannot be predicted: known nodes are written again, too."""
    entries, stamp = table.entries, table.stamp
    low = np.uint32((1 << table.id_bits) - 1)
    for j in places(first, last):
        prefetch(entries, neighbors[min(j + _AHEAD, unsigned(last - 1))])
        vertex = neighbors[j]
        entry = entries[unsigned(vertex)]
        is_new = (entry & ~low) != stamp
        local = np.uint32(num_nodes) if is_new else entry & low
        nodes[unsigned(num_nodes)] = vertex
        entries[unsigned(vertex)] = stamp | local
        neighbors[j] = local
        num_nodes += 1 if is_new else 0
    return num_nodes


@cpu_kernel
def _relabel_hashed(neighbors, first, last, table, nodes, num_nodes):
    entries, slot_bits, id_bits, stamp = table.entries, table.slot_bits, table.id_bits, table.stamp
    low = np.uint32((1 << id_bits) - 1)
    for j in places(first, last):
        prefetch(entries, home(neighbors[min(j + _AHEAD, unsigned(last - 1))], slot_bits))
        vertex = neighbors[j]
        slot = find(vertex, entries, slot_bits, id_bits, stamp, nodes)
        entry = entries[slot]
        local = np.int64(entry & low)
        if (entry & ~low) != stamp:
            local = num_nodes
            nodes[unsigned(local)] = vertex
            entries[slot] = stamp | np.uint32(local)
            num_nodes += 1
        neighbors[j] = local
    return num_nodes


@cpu_kernel
def find(vertex, entries, slot_bits, id_bits, stamp, nodes):
    """Return the slot (``uint64``) of a node, or the free slot where it belongs."""
    low = np.uint32((1 << id_bits) - 1)
    slot, last_slot = unsigned(home(vertex, slot_bits)), unsigned((1 << slot_bits) - 1)
    while True:
        entry = entries[slot]
        if (entry & ~low) != stamp or nodes[unsigned(entry & low)] == vertex:
            return slot
        slot = (slot + _U1) & last_slot


@cpu_kernel
def enter(nodes, num_nodes, table):
    """Enter ``nodes[:num_nodes]`` with their positions as local ids. Return the first position whose node occurs earlier, too, or -1."""
    entries, slot_bits, id_bits, stamp = table.entries, table.slot_bits, table.id_bits, table.stamp
    low = np.uint32((1 << id_bits) - 1)
    for i in range(num_nodes):
        slot = find(nodes[i], entries, slot_bits, id_bits, stamp, nodes)
        if (entries[slot] & ~low) == stamp:
            return i
        entries[slot] = stamp | np.uint32(i)
    return -1
