"""Induced subgraphs on the CPU: from some nodes to the edges between them.

Shapes: V nodes and E edges of the graph, S nodes of the subgraph, M edges between them. Local ids count the S nodes.

Every in-edge of the S nodes is looked at once. Whether its source is in the subgraph is asked of a bitmap, which for some millions of
nodes stays in the second-level cache; only the sources that are in it are looked up in the relabelling table. One pass suffices: the
result is written where there is room for all in-edges, and memory that is never written is never touched.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.cpu.relabel import look_up

_AHEAD = 32
"""Nodes ahead whose offsets are asked for; their columns are when half of these have passed."""
_LINE = 16
"""Ids in a cache line."""
_FIRST_LINES = 4
"""Lines of a column that are asked for; the processor guesses the rest."""
_RARE = 12
"""Edges looked at for each one picked, from which that is rare."""
_U0, _U1, _U6, _U63 = (np.uint64(n) for n in (0, 1, 6, 63))


@cpu_kernel
def seeds_first(found, num_found, is_seed, others, nodes):
    """Copy ``found[:num_found]`` into ``nodes``, those that ``is_seed`` (V,) bool marks first, each kind in its order.

    ``others`` (num_found,) is scratch. Returns the number of seeds.
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
    """Words of a bitmap over the nodes."""
    return (num_graph_nodes >> 6) + 1


@cpu_kernel
def set_bits(bits, vertices, first, last):
    """Put ``vertices[first:last]`` into the bitmap ``bits`` (V/64,) uint64."""
    for i in range(first, last):
        vertex = np.uint64(vertices[i])
        bits[vertex >> _U6] |= _U1 << (vertex & _U63)


@cpu_kernel
def clear_bits(bits, vertices, first, last):
    """Clear the words of the bitmap that ``vertices[first:last]`` are in."""
    for i in range(first, last):
        bits[np.uint64(vertices[i]) >> _U6] = _U0


@cpu_kernel
def induce(indptr, indices, nodes, num_nodes, sources, num_sources, bits, table, out_indptr, out_indices, out_edge_ids):
    """Find the edges into ``nodes[:num_nodes]`` (S,) from ``sources[:num_sources]``, mostly the same, which ``table`` holds with their places.

    ``sources`` has room for one more. Writes ``out_indptr`` (S+1,), ``out_indices`` (local sources) and ``out_edge_ids``; both have room for all
    in-edges and one more. A destination's edges stand in the graph's order. ``bits`` is scratch. Returns M.
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
    """Append the edges ``first`` to ``last`` of the graph whose source is in the bitmap; returns their number so far.

    With a branch where few are (``rare``: it is guessed well); else without, and what is not wanted is written over. Places are unsigned: a
    negative one would have to be looked for at the end of the array.
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
    """Whether few of the edges that were looked at so far were picked."""
    return num_edges * _RARE < looked_at


@cpu_kernel
def ask_ahead(indptr, indices, nodes, place, num_nodes):
    """Ask for the offsets of a node some places ahead, and for the beginning of the column of one half as far, whose offsets are there."""
    if place + _AHEAD < num_nodes:
        prefetch(indptr, np.int64(nodes[place + _AHEAD]))
    near = place + _AHEAD // 2
    if 0 <= near < num_nodes:
        vertex = np.int64(nodes[near])
        begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        for position in range(begin, min(end, begin + _FIRST_LINES * _LINE), _LINE):
            prefetch(indices, position)
