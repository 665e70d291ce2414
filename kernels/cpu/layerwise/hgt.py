"""HGT's sampling by budgets on the CPU: what a node owes to its neighbours that were sampled, and draws by the square of it.

A node that was met, as a seed or as an in-neighbour of a sampled node, has a *met id* within its type, in order of first appearance; its
budget is a float64. Sums are taken in a fixed order and nothing is contracted, so budgets are the same bit for bit on every machine.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import four_words

_B11, _B32, _U0 = (np.uint64(n) for n in (11, 32, 0))
_UNIT = 2.0**-53


@cpu_kernel
def copy_columns_after(indptr, indices, nodes, first, last, ends, out):
    """Append the columns of ``nodes[first:last]`` to ``out``; ``ends`` (S+1,) says where those of the nodes before end, and is gone on with."""
    edges = ends[first]
    for i in range(first, last):
        for position in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            out[edges] = indices[position]
            edges += 1
        ends[i + 1] = edges


@cpu_kernel
def add_budgets(ends, met, first, last, place, budgets):
    """Each of the destinations ``first`` to ``last`` shares 1 out among its in-edges, whose sources are ``met`` (met ids).

    What falls to a node that is sampled already (``place`` >= 0, its local id) is left out.
    """
    for i in range(first, last):
        degree = ends[i + 1] - ends[i]
        for j in range(ends[i], ends[i + 1]):
            if place[met[j]] < 0:
                budgets[met[j]] += 1.0 / degree


@cpu_kernel
def choose(budgets, place, num_samples, address, tree, chosen):
    """Draw ``num_samples`` of the nodes that are not sampled, one after the other, each by its budget's square among those left; or take all.

    ``tree`` (2 T,) float64 is scratch, T a power of two, not below the number of budgets: every inner node is the sum of the two below it, anew after
    each draw, so that nothing is left over of what was taken out. Writes met ids to ``chosen`` and returns how many.
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
    """A multiple of 2**-53 in [0, 1)."""
    word0, word1, _, _ = four_words(address.seed, address.epoch, address.batch, address.hop, np.uint64(draw), _U0)
    return np.float64(((np.uint64(word0) << _B32) | np.uint64(word1)) >> _B11) * _UNIT


@cpu_kernel
def _descend(tree, size, rest):
    """The leaf that ``rest``, below the sum of all, falls to; one of 0 never."""
    node = 1
    while node < size:
        node *= 2
        if rest >= tree[node] and tree[node + 1] > 0:
            rest -= tree[node]
            node += 1
    return node


@cpu_kernel
def keep_sampled(indptr, nodes, num_nodes, ends, met, place, out_indptr, out_indices, out_edge_ids):
    """The edges into ``nodes`` whose sources, ``met`` (met ids), are sampled: local ids of the sources and edge ids; returns their number.

    ``out_indices`` and ``out_edge_ids`` have room for all in-edges.
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
