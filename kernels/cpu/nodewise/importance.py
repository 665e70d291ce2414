"""LABOR on the CPU with importances: a fixed-point iteration finds the importances of the sources, then edges are kept by them.

See ``hoptrain.kernels.cpu.nodewise.labor`` for LABOR without importances. ``ids`` holds the sources column by column, as global ids (the graph's own
``indices``) or as local ids. Importances are doubles computed by +, * and / in an order that the destinations fix, so they are bit-identical on
every machine. The decision itself compares integers.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.nodewise.labor import AHEAD, Cursor, ask_lines, weight_of
from hoptrain.kernels.shared.importance import pieces_of
from hoptrain.kernels.shared.labor import CERTAIN

_U0, _U1 = np.uint64(0), np.uint64(1)
UNIT = 4294967296.0


class LaborColumns(NamedTuple):
    """The columns of D destinations."""

    begins: Any
    """(D,) int64 position in ``ids`` where each destination's column begins."""
    degrees: Any
    """(D,) int64 in-degrees of the destinations."""
    ids: Any
    """Sources of the edges, column by column."""


class LaborSources(NamedTuple):
    """Properties of the N sources, by id."""

    least: Any
    """(N,) uint32 scratch memory: the smallest in-degree among each source's destinations, but at least the fanout."""
    factor: Any
    """(N,) float64 scratch memory: the largest factor c (see ``scale_of``) among each source's destinations; empty for a single round."""
    values: Any
    """(N, 2) float64: the importance of each source, and its random word plus 1. They are adjacent, since they are read together."""


class ColumnBuffers(NamedTuple):
    """The gathered values of one column, (largest degree,) float64 each."""

    importances: Any
    words: Any
    inverses: Any


@cpu_kernel
def enter_words(words, known):
    """Store the random words (N,) uint32 of all sources in ``known``."""
    values = known.values
    for v in range(len(words)):
        values[v, 1] = np.float64(words[v]) + 1.0


@cpu_kernel
def find_importances(columns, fanout, rounds, known, column):
    """Find the sources' importances by ``rounds`` fixed-point iterations from importance 1.

    A round multiplies a source's importance by the largest c of its destinations. In the first round c depends only on the degree and decreases
    with it, so the smallest degree is enough.
    """
    begins, degrees, ids = columns
    least, factor, values = known.least, known.factor, known.values
    least[:] = np.uint32(_U0 - _U1)
    for i in range(len(begins)):
        _ask_ids(begins, ids, i)
        degree = np.uint32(max(degrees[i], fanout))
        for e in range(np.uint64(begins[i]), np.uint64(begins[i] + degrees[i])):
            source = np.uint64(ids[e])
            least[source] = min(least[source], degree)
    for v in range(len(least)):
        values[v, 0] = _even_scale(np.int64(least[v]), fanout)  # for nodes that are not sources the value is meaningless, but never read
    for _ in range(1, rounds):
        factor[:] = 0.0
        for i in range(len(begins)):
            _ask_ids(begins, ids, i)
            c = _gather(begins[i], degrees[i], ids, values, fanout, column)
            for e in range(np.uint64(begins[i]), np.uint64(begins[i] + degrees[i])):
                source = np.uint64(ids[e])
                factor[source] = max(factor[source], c)
        for v in range(len(factor)):
            values[v, 0] *= factor[v]


@cpu_kernel
def _even_scale(degree, fanout):
    """Return the factor c (see ``scale_of``) of a destination with ``degree`` sources, all of importance 1."""
    if degree <= fanout:
        return 1.0
    return np.float64(degree) / (np.float64(degree) * np.float64(degree) / np.float64(fanout))


@cpu_kernel
def _ask_ids(begins, ids, i):
    ask_lines(ids, begins[min(i + AHEAD, len(begins) - 1)])


@cpu_kernel
def _gather(begin, degree, ids, values, fanout, column):
    """Gather the importances and random words of a column's sources, and return ``scale_of`` for these importances."""
    importances, words, inverses = column
    first = np.uint64(begin)
    for j in range(np.uint64(degree)):
        source = np.uint64(ids[first + j])
        importances[j], words[j] = values[source, 0], values[source, 1]
    return scale_of(importances[:degree], inverses[:degree], fanout)


@cpu_kernel
def scale_of(importances, inverses, fanout):
    """Return the factor c of a destination from the importances of its d sources; for d <= fanout all edges are kept.

    c solves sum of 1 / min(1, c importance) = d**2 / fanout. Each step fixes the sources that have probability 1 at the previous c, and solves for the
    others. Both c and the number of fixed sources only grow, so the iteration ends with the exact solution after at most d steps, in practice
    after a few. ``inverses`` (d,) is scratch memory.
    """
    degree = len(importances)
    largest, rest = 0.0, 0.0
    for j in range(degree):
        inverses[j] = 1.0 / importances[j]
    if degree <= fanout:
        for j in range(degree):
            largest = max(largest, inverses[j])
        return largest
    for j in range(degree):
        largest = max(largest, importances[j])
    pieces = pieces_of(degree)
    for piece in range(pieces):
        part = 0.0
        for j in range(degree * piece // pieces, degree * (piece + 1) // pieces):
            part += inverses[j]
        rest += part
    target = np.float64(degree) * np.float64(degree) / np.float64(fanout)
    c, settled = rest / target, 0
    while c * largest >= 1.0:
        count, rest = 0, 0.0
        for piece in range(pieces):
            part = 0.0
            for j in range(degree * piece // pieces, degree * (piece + 1) // pieces):
                if c * importances[j] >= 1.0:
                    count += 1
                else:
                    part += inverses[j]
            rest += part
        if count <= settled:
            break
        c, settled = rest / (target - count), count
    return c


@cpu_kernel
def keep_by_importance(indptr, indices, nodes, columns, cursor, fanout, known, column, chosen, kept):
    """Keep edges by the importances from ``find_importances``. Return the cursor where the capacity of ``kept`` ran out, or the end.

    ``column`` and ``chosen`` (largest degree,) int32 are scratch memory. An edge of probability p is kept if its word is below max(1, floor(2**32 p)).
    That is equivalent to word + 1 <= max(1, 2**32 p), where both sides are exact in doubles, so whole columns are compared in doubles.
    """
    begins, degrees, ids = columns
    edge_ids, out_sources, weights = kept.edge_ids, kept.sources, kept.weights
    importances, words = column.importances, column.words
    num_edges = cursor.num_edges
    for i in range(cursor.destination, len(begins)):
        _ask_ids(begins, ids, i)
        degree, first = degrees[i], np.int64(indptr[nodes[i]])
        if num_edges + degree >= len(edge_ids):
            return Cursor(i, 0, num_edges)
        number, c = degree, 0.0
        if degree > fanout:
            c, number = _gather(begins[i], degree, ids, known.values, fanout, column), 0
            for j in range(degree):
                chosen[number] = j
                number += 1 if max(c * importances[j] * UNIT, 1.0) >= words[j] else 0
        for k in range(number):
            j = np.int64(chosen[k]) if degree > fanout else k
            edge_ids[num_edges] = first + j
            out_sources[num_edges] = indices[first + j]
            weights[num_edges] = weight_of(threshold_of(c * importances[j])) if degree > fanout else np.float32(1.0)
            num_edges += 1
        kept.indptr[i + 1] = num_edges
    return Cursor(len(begins), 0, num_edges)


@cpu_kernel
def threshold_of(probability):
    """Return the threshold of a probability in units of 1 / 2**32, at least 1."""
    return CERTAIN if probability >= 1.0 else max(np.uint64(1), np.uint64(probability * UNIT))
