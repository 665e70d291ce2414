"""LABOR on the CPU with edge weights. Names and arrays are those of ``hoptrain.kernels.cpu.nodewise.importance``.

Before the first round the importance of an edge is its weight; after it, importances belong to sources. Edges of weight 0 are ignored. Weights
are divided by the largest of their column, which changes no probability and keeps squares in the range of doubles.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.nodewise.importance import UNIT, threshold_of
from hoptrain.kernels.cpu.nodewise.labor import Cursor, weight_of


@cpu_kernel
def find_importances(columns, firsts, weights, fanout, rounds, known, column):
    """Find the sources' importances by ``rounds`` fixed-point iterations that start from the weights (E,).

    ``firsts`` (D,) is the CSC position of each column's first edge. A round sets the importance of a source to the maximum, over its destinations,
    of c times the importance of the edge.
    """
    begins, degrees, ids = columns
    factor, values = known.factor, known.values
    for done in range(rounds):
        factor[:] = 0.0
        for i in range(len(begins)):
            degree = degrees[i]
            _gather(begins[i], degree, firsts[i], ids, weights, values, done, column)
            c = scale_of(column.inverses[:degree], column.importances[:degree], fanout)
            for j in range(degree):
                source = ids[begins[i] + j]
                factor[source] = max(factor[source], c * column.importances[j])
        for v in range(len(factor)):
            values[v, 0] = factor[v]


@cpu_kernel
def _gather(begin, degree, first, ids, weights, values, rounds, column):
    """Fill ``column`` with the importances after ``rounds`` rounds, the random words, and the scaled weights (in ``inverses``)."""
    importances, words, own = column
    largest = 0.0
    for j in range(degree):
        largest = max(largest, np.float64(weights[first + j]))
    for j in range(degree):
        source = ids[begin + j]
        own[j] = np.float64(weights[first + j]) / largest if largest > 0.0 else 0.0
        importances[j] = 0.0 if own[j] == 0.0 else values[source, 0] if rounds > 0 else own[j]
        words[j] = values[source, 1]


@cpu_kernel
def scale_of(own, importances, fanout):
    """Return the factor c of a destination from the weights A and the importances p of its d edges with A > 0; for d <= fanout all are kept.

    With S the sum of A, c solves sum of A**2 / min(1, c p) = S**2 (1 / fanout - 1 / d) + sum of A**2. The iteration is that of
    ``hoptrain.kernels.cpu.nodewise.importance.scale_of``.
    """
    degree, total, squares, rest, largest, inverse = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(own)):
        if own[j] > 0.0:
            degree += 1
            total += own[j]
            squares += own[j] * own[j]
            rest += own[j] * own[j] / importances[j]
            largest, inverse = max(largest, importances[j]), max(inverse, 1.0 / importances[j])
    if degree <= fanout:
        return inverse
    target = total * total * (1.0 / fanout - 1.0 / degree) + squares
    c, settled = rest / target, 0
    while c * largest >= 1.0:
        count, rest, certain = 0, 0.0, 0.0
        for j in range(len(own)):
            if own[j] > 0.0:
                if c * importances[j] >= 1.0:
                    count += 1
                    certain += own[j] * own[j]
                else:
                    rest += own[j] * own[j] / importances[j]
        if count <= settled or count == degree:
            break
        c, settled = rest / (target - certain), count
    return c


@cpu_kernel
def keep_by_weight(indptr, indices, nodes, columns, cursor, weights, fanout, rounds, known, column, kept):
    """Keep edges by the importances from ``find_importances``; ``column`` is scratch memory. Return the cursor where capacity ran out, or the end."""
    begins, degrees, ids = columns
    edge_ids, out_sources, out_weights = kept.edge_ids, kept.sources, kept.weights
    num_edges = cursor.num_edges
    for i in range(cursor.destination, len(begins)):
        degree, first = degrees[i], np.int64(indptr[nodes[i]])
        if num_edges + degree >= len(edge_ids):
            return Cursor(i, 0, num_edges)
        _gather(begins[i], degree, first, ids, weights, known.values, rounds, column)
        own, importances = column.inverses[:degree], column.importances[:degree]
        positive = 0
        for j in range(degree):
            positive += 1 if own[j] > 0.0 else 0
        c = scale_of(own, importances, fanout) if positive > fanout else 0.0
        for j in range(degree):
            p = c * importances[j] if positive > fanout else 1.0
            if own[j] > 0.0 and max(p * UNIT, 1.0) >= column.words[j]:
                edge_ids[num_edges] = first + j
                out_sources[num_edges] = indices[first + j]
                out_weights[num_edges] = np.float32(weights[first + j]) * weight_of(threshold_of(p))
                num_edges += 1
        kept.indptr[i + 1] = num_edges
    return Cursor(len(begins), 0, num_edges)
