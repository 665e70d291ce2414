"""LABOR on the CPU with importances, see ``hoptrain.kernels.cpu.nodewise.labor``: they are found by a fixed-point iteration, then edges are kept by them.

Sources are named by ids of any kind, ``ids`` holds them column by column: the graph's own ``indices``, or local ids. Importances are doubles,
made by +, * and / in an order that the destinations fix: the same on every machine. The decision itself compares whole numbers.
"""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.nodewise.labor import AHEAD, Cursor, ask_lines, weight_of
from hoptrain.kernels.shared.importance import pieces_of
from hoptrain.kernels.shared.labor import CERTAIN

_U0, _U1 = np.uint64(0), np.uint64(1)
UNIT = 4294967296.0


class Columns(NamedTuple):
    """The columns of D destinations."""

    begins: Any
    """(D,) int64, where each begins in ``ids``."""
    degrees: Any
    """(D,) int64."""
    ids: Any


class Known(NamedTuple):
    """What is known of the N sources, by id."""

    least: Any
    """(N,) uint32 scratch: the smallest degree of a destination, at least the fanout."""
    factor: Any
    """(N,) float64 scratch, or empty for a single round."""
    values: Any
    """(N, 2) float64, side by side since they are read together: the importance; the random word and 1."""


class Column(NamedTuple):
    """One column's values, gathered: (largest degree,) float64 each."""

    importances: Any
    words: Any
    inverses: Any


@cpu_kernel
def enter_words(words, known):
    """Keep the words (N,) uint32 of all sources."""
    values = known.values
    for v in range(len(words)):
        values[v, 1] = np.float64(words[v]) + 1.0


@cpu_kernel
def find_importances(columns, fanout, rounds, known, column):
    """``rounds`` fixed-point iterations from importance 1; a round multiplies a source's importance by the largest c of its destinations.

    From importances of 1 c depends on the degree alone, and falls with it: so the first round looks for the smallest degree.
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
        values[v, 0] = _even_scale(np.int64(least[v]), fanout)  # of one that is nobody's source: not read
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
    """``scale_of`` a column of ``degree`` sources with importance 1."""
    if degree <= fanout:
        return 1.0
    return np.float64(degree) / (np.float64(degree) * np.float64(degree) / np.float64(fanout))


@cpu_kernel
def _ask_ids(begins, ids, i):
    ask_lines(ids, begins[min(i + AHEAD, len(begins) - 1)])


@cpu_kernel
def _gather(begin, degree, ids, values, fanout, column):
    """Take what is known of a column's sources; returns ``scale_of`` it."""
    importances, words, inverses = column
    first = np.uint64(begin)
    for j in range(np.uint64(degree)):
        source = np.uint64(ids[first + j])
        importances[j], words[j] = values[source, 0], values[source, 1]
    return scale_of(importances[:degree], inverses[:degree], fanout)


@cpu_kernel
def scale_of(importances, inverses, fanout):
    """The c of a destination whose d sources have these importances: sum of 1 / min(1, c importance) = d**2 / fanout; all edges for d <= fanout.

    Each step takes the sources that have probability 1 at the c before as settled and solves for the others. c only grows by that, and so
    does the number of the settled, so it ends with the exact solution after at most d steps; a few in practice. ``inverses`` (d,) is scratch.
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
    """Keep edges by ``find_importances``; ``column`` and ``chosen`` (largest degree,) int32 are scratch. Returns as ``keep_evenly``.

    A word is below floor(2**32 p), or below 1 where that is 0, exactly if the word and 1 are at most 2**32 p, or at most 1: numbers without a
    rounding error, so that whole columns are compared in doubles.
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
    """A probability as a threshold, at least 1 / 2**32."""
    return CERTAIN if probability >= 1.0 else max(np.uint64(1), np.uint64(probability * UNIT))
