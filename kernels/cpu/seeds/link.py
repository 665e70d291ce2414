"""Edges as seeds on the CPU: their end points, negatives, and the removal of seed edges from sampled blocks.

Shapes: E edges of the graph, V nodes, P edges of the batch, k negatives for each. A negative uses the four words of its own group at
(seed, epoch, batch, ``HOP_NEGATIVES``, edge id): two choose a position, the third decides in an alias table.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.relabel import home
from hoptrain.kernels.shared.draws import alias_offset, bounded_wide
from hoptrain.kernels.shared.philox import HOP_NEGATIVES, four_words

FILTER_TRIES = 32


@cpu_kernel
def end_points(indptr, indices, edge_ids, src, dst):
    """Write the sources and destinations of the edges ``edge_ids`` (P,) into ``src`` and ``dst`` (P,): global ids."""
    for i in range(len(edge_ids)):
        edge = np.int64(edge_ids[i])
        # binary search for the destination: its column begins at or before the edge, the next column after the edge
        low, high = 0, len(indptr) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if indptr[middle] <= edge:
                low = middle
            else:
                high = middle
        src[i], dst[i] = indices[edge], low


@cpu_kernel
def uniform_negatives(edge_ids, count, num_graph_nodes, address, out):
    """Fill ``out`` (P * k,) with nodes drawn uniformly from all nodes."""
    for i in range(len(edge_ids)):
        for j in range(count):
            out[i * count + j] = _draw(edge_ids[i], j, num_graph_nodes, address)[0]


@cpu_kernel
def filtered_negatives(indptr, indices, is_sorted, begin, end, is_one_type, edge_ids, src, count, address, out):
    """Fill ``out`` (P * k,) with nodes of [begin, end) drawn uniformly until no edge leads from ``src[i]`` to them, up to ``FILTER_TRIES`` times.

    If both ends are of one type, ``src[i]`` itself is redrawn, too. The first try is the uniform negative; try t of negative j uses the words of
    negative j + t * k. ``is_sorted`` tells that columns ascend.
    """
    for i in range(len(edge_ids)):
        for j in range(count):
            for number in range(j, FILTER_TRIES * count, count):
                vertex = begin + _draw(edge_ids[i], number, end - begin, address)[0]
                is_other = not is_one_type or vertex != src[i]
                if is_other and not _has_source(indices[indptr[vertex] : indptr[vertex + 1]], is_sorted, src[i]):
                    break
            out[i * count + j] = vertex


@cpu_kernel
def _has_source(column, is_sorted, source):
    """Return whether ``source`` is in a column of the graph."""
    if is_sorted:
        return _is_among(column, source)
    for other in column:  # noqa: SIM110 - Numba compiles a loop, not any()
        if other == source:
            return True
    return False


@cpu_kernel
def weighted_negatives(edge_ids, count, threshold, alias, address, out):
    """Fill ``out`` (P * k,) with nodes drawn by the alias table of all nodes, ``threshold`` (V,) uint32 and ``alias`` (V,) int32."""
    for i in range(len(edge_ids)):
        for j in range(count):
            place, word = _draw(edge_ids[i], j, len(threshold), address)
            out[i * count + j] = alias_offset(place, word, threshold[place], np.int64(alias[place]))


@cpu_kernel
def in_batch_negatives(edge_ids, count, dst, address, out):
    """Fill ``out`` (P * k,) with destinations of other edges of the batch, drawn uniformly; P is at least 2."""
    num_edges = len(edge_ids)
    for i in range(num_edges):
        for j in range(count):
            further = 1 + _draw(edge_ids[i], j, num_edges - 1, address)[0]
            out[i * count + j] = dst[(i + further) % num_edges]


@cpu_kernel
def _draw(edge, number, limit, address):
    """Return a uniformly random integer in [0, limit) and a further random word."""
    word0, word1, word2, _ = four_words(address.seed, address.epoch, address.batch, HOP_NEGATIVES, np.uint64(edge), np.uint64(number))
    return bounded_wide(word0, word1, limit), word2


@cpu_kernel
def find_seeds(nodes, num_seeds, table, out):
    """Fill ``out`` (S,) int32 with the local id of the seed that equals each node, or ``num_seeds``. The table holds only the seeds."""
    entries, slot_bits, stamp = table.entries, table.slot_bits, table.stamp
    low = np.uint32((1 << table.id_bits) - 1)
    for i in range(len(nodes)):
        slot = home(nodes[i], slot_bits)
        out[i] = num_seeds
        while (entries[slot] & ~low) == stamp:
            local = np.int64(entries[slot] & low)
            if nodes[local] == nodes[i]:
                out[i] = local
                break
            slot = (slot + 1) & ((1 << slot_bits) - 1)


@cpu_kernel
def drop_edges(indptr, indices, edge_ids, weights, sources, destinations, num_sources, num_destinations, dropped):
    """Remove the edges between seeds that ``dropped`` lists from a block, in place. The other edges keep their order.

    ``dropped`` holds sorted codes ``source * num_destinations + destination`` of local ids of seeds. ``sources`` and ``dst_range`` are what
    ``find_seeds`` wrote for the nodes of the source type and of the destination type; in a homogeneous graph both arrays and both numbers are the same.
    ``weights`` is empty if the block has none. Returns the number of remaining edges.
    """
    has_weights = len(weights) > 0
    kept = begin = 0
    for i in range(len(indptr) - 1):
        end, dst = indptr[i + 1], np.int64(destinations[i])
        for j in range(begin, end):
            src = np.int64(sources[indices[j]]) if dst < num_destinations else num_sources
            if src < num_sources and _is_among(dropped, src * num_destinations + dst):
                continue
            indices[kept], edge_ids[kept] = indices[j], edge_ids[j]
            if has_weights:
                weights[kept] = weights[j]
            kept += 1
        begin = end
        indptr[i + 1] = kept
    return kept


@cpu_kernel
def _is_among(values, value):
    """Return whether ``value`` is in the ascending ``values``."""
    place = np.searchsorted(values, value)
    return place < len(values) and values[place] == value
