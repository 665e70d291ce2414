"""Probabilities that a subgraph of independent draws contains a node, or both ends of an edge, and the resulting weights.

Everything is computed by +, *, / and comparisons of doubles in a fixed order, so results are bit-identical on every machine. Products of
probabilities are only added, so nothing cancels: the relative error of any probability, also a tiny one, is about 2 * draws * 2**-53.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned


class Rates(NamedTuple):
    """The probabilities with which one draw hits nodes and seeds; draws are independent. T is the set of seeds; a subgraph contains at least one seed."""

    draws: int
    """Number of draws that make up a subgraph."""
    hits: Any
    """(V,) float64: for each node, the probability that one draw hits it."""
    outside: Any
    """(V,) float64: for each node, the probability that one draw hits it but no seed; 0 for seeds."""
    missed: float
    """Probability that one draw hits no seed."""


@cpu_kernel
def both_hit(draws, a, b, both, whole):
    """Return the probability that at least one of the draws hits A, at least one hits B, and all draws are within an event of probability ``whole``.

    Within that event a draw hits A with probability ``a``, B with ``b``, and both at once with ``both``. The four outcomes of a set of draws (both
    were hit, only A, only B, neither) are combined by repeated doubling of the number of draws. Estimated or rounded rates may be inconsistent, so
    ``both`` is clipped to its valid range.
    """
    both = max(min(both, a, b), a + b - whole)
    one_a, one_b, none = a - both, b - both, max(whole - a - b + both, 0.0)
    found, only_a, only_b, neither = both, one_a, one_b, none
    bit = 1
    while 2 * bit <= draws:
        bit *= 2
    while bit > 1:
        bit //= 2
        found = found * (found + 2.0 * (only_a + only_b + neither)) + 2.0 * (only_a * only_b)
        only_a, only_b = only_a * (only_a + 2.0 * neither), only_b * (only_b + 2.0 * neither)
        neither *= neither
        if draws & bit:
            before = only_a + only_b + neither
            found = found * (both + one_a + one_b + none) + before * both + (only_a * one_b + only_b * one_a)
            only_a = only_a * (one_a + none) + neither * one_a
            only_b = only_b * (one_b + none) + neither * one_b
            neither *= none
    return found


@cpu_kernel
def hit(draws, rate, whole):
    """Return the probability that at least one draw hits, each with probability ``rate``, and all are within an event of probability ``whole``."""
    return both_hit(draws, rate, rate, rate, whole)


@cpu_kernel
def _vertex(rates, v):
    """Return the probability that a subgraph contains node ``v`` and at least one node of the split (T)."""
    return hit(rates.draws, rates.hits[v], 1.0) - hit(rates.draws, rates.outside[v], rates.missed)


@cpu_kernel
def weigh_seeds(rates, seeds, weights):
    """Set ``weights`` (V,) float32 of the ``seeds`` (N,), which are T, to 1 / (N p(v)).

    p(v) is the probability that a subgraph contains the node, given that it contains a node of T. A node that is never hit gets weight 0. Returns
    the sum of p(v) over the seeds, and the probability that a subgraph contains a seed at all.
    """
    met = hit(rates.draws, 1.0 - rates.missed, 1.0)
    total = 0.0
    for i in range(len(seeds)):
        p = _vertex(rates, seeds[i]) / met
        weights[seeds[i]] = 1.0 / (len(seeds) * p) if p > 0.0 else 0.0
        total += p
    return total, met


@cpu_kernel
def weigh_edges(indptr, indices, rates, weights):
    """Set ``weights`` (E,) float32 to p(v) / p(u, v) for every edge u -> v, or 0 if the edge is in no subgraph.

    Both probabilities are conditional on the subgraph containing a node of T. On input ``weights`` holds the probability that a draw hits both ends.
    """
    draws, hits, outside, missed = rates.draws, rates.hits, rates.outside, rates.missed
    for v in range(len(indptr) - 1):
        p = _vertex(rates, v)
        for e in places(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            both = np.float64(weights[e])
            pair = p
            if u != v:
                pair = both_hit(draws, hits[unsigned(u)], hits[v], both, 1.0)
                if outside[unsigned(u)] > 0.0 and outside[v] > 0.0:
                    pair -= both_hit(draws, outside[unsigned(u)], outside[v], both, missed)
            weights[e] = p / pair if pair > 0.0 else 0.0


@cpu_kernel
def table_masses(threshold, alias, masses):
    """Fill ``masses`` (V,) int64 with the exact probability of each entry in draws by an alias table, in units of 1 / (V * 2**32)."""
    masses[:] = 0
    for v in range(len(threshold)):
        kept = np.int64(threshold[v])
        masses[v] += kept
        masses[alias[v]] += (1 << 32) - kept


@cpu_kernel
def edge_rates(indptr, indices, num_ends, is_seed, hits, outside):
    """Fill ``hits`` and ``outside`` for draws of a uniform in-edge of one of ``num_ends`` nodes, which hit both ends of the edge.

    ``is_seed`` (V,) bool marks the nodes of T. Returns the probability that a draw misses T.
    """
    hits[:] = 0.0
    outside[:] = 0.0
    missed = 0.0
    for v in range(len(indptr) - 1):
        rate = 1.0 / (np.float64(num_ends) * np.float64(indptr[v + 1] - indptr[v]))
        for e in places(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            misses = not (is_seed[v] or is_seed[unsigned(u)])
            hits[v] += rate
            hits[unsigned(u)] += rate if u != v else 0.0
            if misses:
                missed += rate
                outside[v] += rate
                outside[unsigned(u)] += rate if u != v else 0.0
    return missed


@cpu_kernel
def edge_pair_rates(indptr, indices, num_ends, out_indptr, out_indices, rate_of, rates):
    """Fill ``rates`` (E,) float32 with the probability that a draw of ``edge_rates`` is an edge between both ends of this edge, in either direction.

    ``out_indptr`` and ``out_indices`` are the reversed graph; ``rate_of`` (V,) float64 is scratch memory.
    """
    rate_of[:] = 0.0
    for v in range(len(indptr) - 1):
        rate = 1.0 / (np.float64(num_ends) * np.float64(indptr[v + 1] - indptr[v]))
        for e in places(indptr[v], indptr[v + 1]):
            rate_of[unsigned(indices[e])] += rate
        for e in places(out_indptr[v], out_indptr[v + 1]):
            w = unsigned(out_indices[e])
            rate_of[w] += 1.0 / (np.float64(num_ends) * np.float64(indptr[w + np.uint64(1)] - indptr[w]))
        for e in places(indptr[v], indptr[v + 1]):
            rates[e] = rate_of[unsigned(indices[e])]
        for e in places(indptr[v], indptr[v + 1]):
            rate_of[unsigned(indices[e])] = 0.0
        for e in places(out_indptr[v], out_indptr[v + 1]):
            rate_of[unsigned(out_indices[e])] = 0.0


@cpu_kernel
def turn_round(indptr, indices, out_indptr, out_indices):
    """Write the graph with all edges reversed to ``out_indptr`` (V+1,) and ``out_indices`` (E,), which ascend within a column."""
    num_nodes = len(indptr) - 1
    out_indptr[:] = 0
    for e in range(len(indices)):
        out_indptr[np.int64(indices[e]) + 1] += 1
    for v in range(num_nodes):
        out_indptr[v + 1] += out_indptr[v]
    cursor = out_indptr[:num_nodes].copy()
    for v in range(num_nodes):
        for e in places(indptr[v], indptr[v + 1]):
            u = unsigned(indices[e])
            out_indices[unsigned(cursor[u])] = v
            cursor[u] += 1
