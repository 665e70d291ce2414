"""Removal of excluded edges, given by their CSC positions, from sampled blocks on the CPU."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def drop_places(graph_indptr, nodes, num_seeds, indptr, indices, edge_ids, weights, dropped):
    """Remove the edges at the CSC positions ``dropped`` (N,) from a block, in place. The other edges keep their order.

    ``dropped`` ascends. ``nodes`` begins with the global ids of the block's destinations. ``weights`` is empty if the block has none. Returns the
    number of remaining edges, and whether a removed edge came from a node after the first ``num_seeds``. Only columns with a dropped edge are
    checked edge by edge.
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
    """Copy the destinations ``rows`` (local ids) of a block and their edges to ``out``, arrays like the block's, and renumber the sources.

    ``new_of`` (S,) has the new id of each node of the sources' type, or -1 if it has none yet. ``order`` has the ``num_found`` nodes with new ids, in
    the order of these; further nodes are appended. Returns the new number of nodes in ``order``.
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
    """Return the first position in [low, high) whose entry is at least ``value``, or ``high``."""
    low, high = np.int64(low), np.int64(high)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
