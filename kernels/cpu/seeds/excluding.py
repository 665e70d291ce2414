"""Edges that messages must not pass, by their places, on the CPU."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def drop_places(graph_indptr, nodes, indptr, indices, edge_ids, weights, dropped):
    """Take the edges at the places ``dropped`` (N,) out of a block, in place; the others keep their order.

    ``dropped`` ascends. ``nodes``: global ids of the block's destinations, and maybe further ones. ``weights`` is empty where the block has
    none. Returns how many edges are left. Only columns that have a dropped edge are looked at edge by edge.
    """
    has_weights, num_dropped = len(weights) > 0, len(dropped)
    kept = begin = 0
    for i in range(len(indptr) - 1):
        end, vertex = indptr[i + 1], nodes[i]
        low = _first_at_least(dropped, 0, num_dropped, graph_indptr[vertex])
        high = _first_at_least(dropped, low, num_dropped, graph_indptr[vertex + 1])
        for j in range(begin, end):
            if low < high:
                place = _first_at_least(dropped, low, high, edge_ids[j])
                if place < high and dropped[place] == edge_ids[j]:
                    continue
            indices[kept], edge_ids[kept] = indices[j], edge_ids[j]
            if has_weights:
                weights[kept] = weights[j]
            kept += 1
        begin = end
        indptr[i + 1] = kept
    return kept


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
