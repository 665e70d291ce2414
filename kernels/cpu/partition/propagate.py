"""Label propagation under limits."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel


@cpu_kernel
def propagate(indptr, indices, edge_sizes, sizes, labels, loads, limits, gains, seen):
    """One pass in which every node takes the label that most of its in-edges have, where that label has room.

    Label propagation with size constraints (Meyerhenke, Sanders, Schulz, "Partitioning complex networks via size-constrained clustering", SEA
    2014), reading the edges in their order, so that they may lie in a file (Akhremtsev, Sanders, Schulz, "(Semi-)external algorithms for graph
    partitioning and clustering", ALENEX 2015). Of labels with as many edges the node keeps its own, or takes the one that it met first.

    Args:
        indptr: (V+1,) of the columns.
        indices: (E,) sources.
        edge_sizes: (E,) integers, how many edges each stands for, or (0,) where each is one.
        sizes: (V, S) int64, what a node adds to its label's loads.
        labels: (V,) int32 in [0, L); changed.
        loads: (L, S) int64, the sums of ``sizes`` by label; changed.
        limits: (S,) int64, what no label may come to exceed by a node that enters it.
        gains: (L,) int64 zeros, and zeros again at the end.
        seen: (D,) int32 scratch, D the largest in-degree.

    Returns:
        How many nodes changed their label.
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
            if gains[label] > gains[best] and has_room(loads, label, sizes, v, limits):
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
def has_room(loads, label, sizes, v, limits):
    """Whether node ``v`` may enter the label."""
    for s in range(len(limits)):  # noqa: SIM110 - Numba has no all()
        if loads[label, s] + sizes[v, s] > limits[s]:
            return False
    return True
