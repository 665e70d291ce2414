"""How probable it is that a subgraph of independent draws contains a node, and both ends of an edge; and the weights that follow.

All is made of +, *, / and comparisons of doubles in a fixed order: the same on every machine. Products of probabilities are only ever added
to each other, so that nothing cancels: a tiny probability is as precise as a large one, about 2 * draws * 2**-53 of itself.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned


class Rates(NamedTuple):
    """What one of the draws hits, given which the draws are independent and alike. T: nodes of which a subgraph has at least one."""

    draws: int
    hits: Any
    """(V,) float64: the probability that a draw hits the node."""
    outside: Any
    """(V,) float64: that it hits the node and none of T; 0 for a node of T."""
    missed: float
    """That it hits none of T."""


@cpu_kernel
def both_hit(draws, a, b, both, whole):
    """The probability that some of the draws hit A and some hit B, and each draw is one of those that have the probability ``whole`` together.

    A draw hits A with probability ``a``, B with ``b``, and both at once with ``both``. The draws' outcomes (both were hit, A alone, B alone,
    neither) are joined by doubling their number. Rates that are estimates, or rounded, may not fit together: ``both`` is made to fit.
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
    """The probability that some of the draws hit, each with probability ``rate``; ``whole`` as above."""
    return both_hit(draws, rate, rate, rate, whole)


@cpu_kernel
def _vertex(rates, v):
    """The probability that a subgraph has the node and one of T."""
    return hit(rates.draws, rates.hits[v], 1.0) - hit(rates.draws, rates.outside[v], rates.missed)


@cpu_kernel
def weigh_seeds(rates, seeds, weights):
    """``weights`` (V,) float32 at the ``seeds`` (N,), which are T: 1 / (N p(v)).

    p(v) is the probability that a subgraph has the node, given that it has one of T. A node that is never hit weighs 0. Returns the sum of
    p(v) over the seeds, and the probability that a subgraph has one of them at all.
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
    """``weights`` (E,) float32: p(v) / p(u, v) for every edge u -> v, both given that the subgraph has one of T; 0 for what never is in one.

    It holds before with which probability a draw hits both ends.
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
    """``masses`` (V,) int64, of V * 2**32 in all: how probable each entry of an alias table is, exactly as draws by it are."""
    masses[:] = 0
    for v in range(len(threshold)):
        kept = np.int64(threshold[v])
        masses[v] += kept
        masses[alias[v]] += (1 << 32) - kept


@cpu_kernel
def edge_rates(indptr, indices, num_ends, is_seed, hits, outside):
    """Fill ``hits`` and ``outside`` for draws of an in-edge, uniform, of one of ``num_ends`` nodes; a draw hits both ends of its edge.

    ``is_seed`` (V,) bool marks T. Returns the probability that a draw misses T.
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
    """``rates`` (E,) float32: with which probability a draw of ``edge_rates`` is an edge between the ends of this one, in either direction.

    ``out_indptr`` and ``out_indices``: the graph the other way round; ``rate_of`` (V,) float64 is scratch.
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
    """Write the graph with all edges the other way round: ``out_indptr`` (V+1,), ``out_indices`` (E,), which ascend within a column."""
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
