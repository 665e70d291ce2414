"""HGT's sampling by budgets on the CPU: sampled nodes add to the budgets of their in-neighbours, and nodes are drawn by squared budget.

A node that was seen, as a seed or as an in-neighbour of a sampled node, has a *met id* within its type, in order of first appearance. Its budget is a
float64. Sums have a fixed order, and multiplication and addition are not fused, so budgets are bit-identical on every machine.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import four_words

_B11, _B32, _U0 = (np.uint64(n) for n in (11, 32, 0))
_UNIT = 2.0**-53


@cpu_kernel
def copy_columns_after(indptr, indices, nodes, first, last, ends, out):
    """Append the columns of ``nodes[first:last]`` to ``out``, and the columns' ends to ``ends`` (S+1,), which already holds the ends for earlier nodes."""
    edges = ends[first]
    for i in range(first, last):
        for position in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            out[edges] = indices[position]
            edges += 1
        ends[i + 1] = edges


@cpu_kernel
def add_budgets(ends, met, first, last, place, budgets):
    """Add 1 / in-degree of each destination in [first, last) to the budget of each in-edge's source, given by its met id in ``met``.

    Sources that are already sampled (``place`` >= 0, their local id) are skipped.
    """
    for i in range(first, last):
        degree = ends[i + 1] - ends[i]
        for j in range(ends[i], ends[i + 1]):
            if place[met[j]] < 0:
                budgets[met[j]] += 1.0 / degree


@cpu_kernel
def choose(budgets, place, num_samples, address, tree, chosen):
    """Draw ``num_samples`` nodes that are not sampled, one after another, by squared budget without replacement; or take all if there are fewer.

    ``tree`` (2 T,) float64 is scratch memory, T a power of two and at least the number of budgets. Every inner node is the sum of its two children; the
    sums are recomputed after each draw, so that rounding errors of drawn nodes do not remain. Writes met ids to ``chosen`` and returns their number.
    """
    size, number, left = len(tree) // 2, len(budgets), 0
    tree[size:] = 0.0
    for i in range(number):
        if place[i] < 0:
            chosen[left] = i
            left += 1
            tree[size + i] = budgets[i] * budgets[i]
    if left <= num_samples:
        return left
    for i in range(size - 1, 0, -1):
        tree[i] = tree[2 * i] + tree[2 * i + 1]
    for j in range(num_samples):
        node = _descend(tree, size, _uniform(address, j) * tree[1])
        chosen[j] = node - size
        tree[node] = 0.0
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]
    return num_samples


@cpu_kernel
def _uniform(address, draw):
    """Return a uniform multiple of 2**-53 in [0, 1)."""
    word0, word1, _, _ = four_words(address.seed, address.epoch, address.batch, address.hop, np.uint64(draw), _U0)
    return np.float64(((np.uint64(word0) << _B32) | np.uint64(word1)) >> _B11) * _UNIT


@cpu_kernel
def _descend(tree, size, rest):
    """Return the leaf at the cumulative weight ``rest``, which is below the total. Leaves of weight 0 are never returned."""
    node = 1
    while node < size:
        node *= 2
        if rest >= tree[node] and tree[node + 1] > 0:
            rest -= tree[node]
            node += 1
    return node


@cpu_kernel
def keep_sampled(indptr, nodes, num_nodes, ends, met, place, out_indptr, out_indices, out_edge_ids):
    """Write the edges into ``nodes`` whose sources, given by met ids in ``met``, are sampled: local source ids and edge ids. Return their number.

    ``out_indices`` and ``out_edge_ids`` have capacity for all in-edges.
    """
    kept = 0
    out_indptr[0] = 0
    for i in range(num_nodes):
        for j in range(ends[i], ends[i + 1]):
            local = place[met[j]]
            if local >= 0:
                out_indices[kept] = local
                out_edge_ids[kept] = indptr[nodes[i]] + j - ends[i]
                kept += 1
        out_indptr[i + 1] = kept
    return kept
