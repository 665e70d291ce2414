"""Induced subgraphs on the CPU: all edges between given nodes.

Shapes: V nodes and E edges of the graph, S nodes of the subgraph, M edges between them. Local ids number the S nodes.

Every in-edge of the S nodes is checked once. A bitmap tells whether its source is in the subgraph; for some millions of nodes it stays in the
second-level cache. Only sources in the bitmap are looked up in the relabelling table. One pass is enough: the output buffer has capacity for all
in-edges, and pages of it that are never written take no memory.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.cpu.relabel import look_up

_AHEAD = 32
"""Prefetch distance, in nodes, for column offsets; columns are prefetched at half this distance."""
_LINE = 16
"""Number of ids in a cache line."""
_FIRST_LINES = 4
"""Number of cache lines of a column that the code prefetches. The processor's own prefetcher fetches the others."""
_RARE = 12
"""Kept edges count as rare if the number of checked edges exceeds the number of kept edges by more than this factor."""
_U0, _U1, _U6, _U63 = (np.uint64(n) for n in (0, 1, 6, 63))


@cpu_kernel
def seeds_first(found, num_found, is_seed, others, nodes):
    """Copy ``found[:num_found]`` to ``nodes``, the seeds (marked in ``is_seed`` (V,) bool) before the other nodes, each in their order.

    ``others`` (num_found,) is scratch memory. Returns the number of seeds.
    """
    num_seeds, num_others = 0, 0
    for i in range(num_found):
        prefetch(is_seed, np.int64(found[min(i + _AHEAD, num_found - 1)]))
        vertex = found[i]
        if is_seed[vertex]:
            nodes[num_seeds] = vertex
            num_seeds += 1
        else:
            others[num_others] = vertex
            num_others += 1
    nodes[num_seeds:num_found] = others[:num_others]
    return num_seeds


def bitmap_words(num_graph_nodes):
    """Return the number of 64-bit words of a bitmap over the nodes."""
    return (num_graph_nodes >> 6) + 1


@cpu_kernel
def set_bits(bits, vertices, first, last):
    """Set the bits of the nodes in [first, last) of a list of global ids, in the bitmap ``bits`` (V/64,) uint64."""
    for i in range(first, last):
        vertex = np.uint64(vertices[i])
        bits[vertex >> _U6] |= _U1 << (vertex & _U63)


@cpu_kernel
def clear_bits(bits, vertices, first, last):
    """Clear the words of the bitmap that contain the nodes in [first, last) of a list of global ids."""
    for i in range(first, last):
        bits[np.uint64(vertices[i]) >> _U6] = _U0


@cpu_kernel
def induce(indptr, indices, nodes, num_nodes, sources, num_sources, bits, table, out_indptr, out_indices, out_edge_ids):
    """Find the edges into ``nodes[:num_nodes]`` (S,) from ``sources[:num_sources]``, which are usually the same nodes. Return their number M.

    ``table`` holds the sources with their positions as local ids; ``sources`` has capacity for one more. Writes ``out_indptr`` (S+1,), ``out_indices``
    (local sources) and ``out_edge_ids``; the latter two have capacity for all in-edges and one more. A destination's edges are in the graph's
    order. ``bits`` is scratch memory.
    """
    bits[:] = _U0
    set_bits(bits, sources, 0, num_sources)
    for place in range(-_AHEAD, 0):
        ask_ahead(indptr, indices, nodes, place, num_nodes)
    num_edges, looked_at = 0, 0
    out_indptr[0] = 0
    for place in range(num_nodes):
        ask_ahead(indptr, indices, nodes, place, num_nodes)
        first, last = np.int64(indptr[nodes[place]]), np.int64(indptr[nodes[place] + 1])
        rare = is_rare(num_edges, looked_at)
        num_edges = pick(indices, first, last, bits, num_edges, rare, out_indices, out_edge_ids)
        looked_at += last - first
        out_indptr[place + 1] = num_edges
    look_up(out_indices, num_edges, table, sources)
    return num_edges


@cpu_kernel
def pick(indices, first, last, bits, num_edges, rare, out_indices, out_edge_ids):
    """Append the edges at CSC positions [first, last) whose source is in the bitmap. Return the new number of edges.

    With ``rare`` the loop branches, which is predicted well. Otherwise it has no branch: unwanted edges are written and then overwritten. Indices are unsigned
    because Numba would check signed indices for negative values.
    """
    found = np.uint64(num_edges)
    if rare:
        for j in range(np.uint64(first), np.uint64(last)):
            source = np.uint64(indices[j])
            if (bits[source >> _U6] >> (source & _U63)) & _U1:
                out_indices[found] = indices[j]
                out_edge_ids[found] = j
                found += _U1
    else:
        for j in range(np.uint64(first), np.uint64(last)):
            source = np.uint64(indices[j])
            out_indices[found] = indices[j]
            out_edge_ids[found] = j
            found += (bits[source >> _U6] >> (source & _U63)) & _U1
    return np.int64(found)


@cpu_kernel
def is_rare(num_edges, looked_at):
    """Return whether only few of the edges checked so far were picked."""
    return num_edges * _RARE < looked_at


@cpu_kernel
def ask_ahead(indptr, indices, nodes, place, num_nodes):
    """Prefetch the offsets of a node some positions ahead, and the beginning of the column of a node half as far, whose offsets have arrived."""
    if place + _AHEAD < num_nodes:
        prefetch(indptr, np.int64(nodes[place + _AHEAD]))
    near = place + _AHEAD // 2
    if 0 <= near < num_nodes:
        vertex = np.int64(nodes[near])
        begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        for position in range(begin, min(end, begin + _FIRST_LINES * _LINE), _LINE):
            prefetch(indices, position)
