"""Edges that messages must not pass, by their places, on the CPU."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def drop_places(graph_indptr, nodes, num_seeds, indptr, indices, edge_ids, weights, dropped):
    """Take the edges at the places ``dropped`` (N,) out of a block, in place; the others keep their order.

    ``dropped`` ascends. ``nodes``: global ids of the block's destinations, and maybe further ones. ``weights`` is empty where the block has
    none. Returns how many edges are left, and whether one that is gone came from another node than the first ``num_seeds``. Only columns that have
    a dropped edge are looked at edge by edge.
    """
    has_weights, num_dropped, from_others = len(weights) > 0, len(dropped), False
    kept = begin = 0
    for i in range(len(indptr) - 1):
        end, vertex = indptr[i + 1], nodes[i]
        low = _first_at_least(dropped, 0, num_dropped, graph_indptr[vertex])
        high = _first_at_least(dropped, low, num_dropped, graph_indptr[vertex + 1])
        for j in range(begin, end):
            if low < high:
                place = _first_at_least(dropped, low, high, edge_ids[j])
                if place < high and dropped[place] == edge_ids[j]:
                    from_others |= indices[j] >= num_seeds
                    continue
            indices[kept], edge_ids[kept] = indices[j], edge_ids[j]
            if has_weights:
                weights[kept] = weights[j]
            kept += 1
        begin = end
        indptr[i + 1] = kept
    return kept, from_others


@cpu_kernel
def reach(indptr, indices, edge_ids, weights, rows, new_of, order, num_found, out):
    """Write the ``rows`` of a block, local ids of destinations, into ``out``, arrays like the block's, with new ids for the sources.

    ``new_of`` (S,) has the new id of each node of the sources' type, -1 for one that was not found yet; ``order`` the ``num_found`` nodes that were, in
    the order of their new ids. Nodes that are found are appended. Returns how many there are then.
    """
    out_indptr, out_indices, out_edge_ids, out_weights = out
    has_weights, num_edges = len(weights) > 0, 0
    out_indptr[0] = 0
    for i in range(len(rows)):
        for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
            source = indices[j]
            if new_of[source] < 0:
                new_of[source], order[num_found] = num_found, source
                num_found += 1
            out_indices[num_edges], out_edge_ids[num_edges] = new_of[source], edge_ids[j]
            if has_weights:
                out_weights[num_edges] = weights[j]
            num_edges += 1
        out_indptr[i + 1] = num_edges
    return num_found


@cpu_kernel
def _first_at_least(ascending, low, high, value):
    """The first of the places ``low`` to ``high`` - 1 with an entry of at least ``value``, else ``high``."""
    low, high = np.int64(low), np.int64(high)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
