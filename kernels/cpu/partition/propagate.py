"""Label propagation with size constraints."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def propagate(indptr, indices, edge_sizes, sizes, labels, loads, limits, gains, seen):
    """Move every node to the label that most of its in-edges have and that has capacity, in one pass.

    This is label propagation with size constraints (Meyerhenke, Sanders, Schulz, "Partitioning complex networks via size-constrained clustering",
    SEA 2014). It reads the edges in order, so that they may be in a file (Akhremtsev, Sanders, Schulz, "(Semi-)external algorithms for graph
    partitioning and clustering", ALENEX 2015). On a tie the node keeps its own label, or takes the first one in edge order.

    Args:
        indptr: (V+1,) offsets of the columns.
        indices: (E,) sources.
        edge_sizes: (E,) number of original edges that each edge stands for; (0,) if every edge stands for one.
        sizes: (V, S) int64, the loads that each node adds to its label, for S kinds of load.
        labels: (V,) int32 labels in [0, L); changed in place.
        loads: (L, S) int64 sums of ``sizes`` by label; changed in place.
        limits: (S,) int64 maximum load of a label that a node may move to.
        gains: (L,) int64 zeros, used as scratch memory and zero again at the end.
        seen: (D,) int32 scratch memory, D the largest in-degree.

    Returns:
        The number of nodes that changed their label.
    """
    moved = 0
    for v in range(len(labels)):
        own, number = labels[v], 0
        for e in range(np.int64(indptr[v]), np.int64(indptr[v + 1])):
            u = np.int64(indices[e])
            if u != v:
                label = labels[u]
                if gains[label] == 0:
                    seen[number] = label
                    number += 1
                gains[label] += edge_sizes[e] if len(edge_sizes) else 1
        best = own
        for i in range(number):
            label = seen[i]
            if gains[label] > gains[best] and has_capacity(loads, label, sizes, v, limits):
                best = label
        for i in range(number):
            gains[seen[i]] = 0
        if best != own:
            for s in range(len(limits)):
                loads[own, s] -= sizes[v, s]
                loads[best, s] += sizes[v, s]
            labels[v] = best
            moved += 1
    return moved


@cpu_kernel
def has_capacity(loads, label, sizes, v, limits):
    """Return whether node ``v`` may move to the label without exceeding a limit."""
    for s in range(len(limits)):  # noqa: SIM110 - Numba has no all()
        if loads[label, s] + sizes[v, s] > limits[s]:
            return False
    return True
