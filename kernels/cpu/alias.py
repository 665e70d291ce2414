"""Alias tables, which draw a neighbour by weight with two random words and two reads, independent of the degree."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

_SCALE = 4294967296.0


@cpu_kernel
def build_alias(indptr, weights, threshold, alias):
    """Fill ``threshold`` (E,) uint32 and ``alias`` (E,) int32 by Vose's method (1991). An alias is an offset within the column.

    A drawn edge is kept with probability threshold / 2**32; otherwise its alias is taken. A column whose weights are all 0 has the alias -1.
    Only +, -, * and / on doubles are used, in a fixed order, so the tables are bit-identical on every machine.
    """
    most = 0
    for v in range(len(indptr) - 1):
        most = max(most, indptr[v + 1] - indptr[v])
    share = np.empty(most, np.float64)
    stack = np.empty(most, np.int64)  # edges with a share below 1 are stored from the front, the remaining edges from the back
    for v in range(len(indptr) - 1):
        begin, degree = indptr[v], indptr[v + 1] - indptr[v]
        total = 0.0
        for j in range(degree):
            total += weights[begin + j]
        if total > 0.0:
            _build_column(
                weights[begin : begin + degree], total, share, stack, threshold[begin : begin + degree], alias[begin : begin + degree]
            )
        else:
            alias[begin : begin + degree] = -1


@cpu_kernel
def _build_column(weights, total, share, stack, threshold, alias):
    degree = len(weights)
    below, above = 0, degree
    for j in range(degree):
        share[j] = weights[j] / total * degree
        if share[j] < 1.0:
            stack[below] = j
            below += 1
        else:
            above -= 1
            stack[above] = j
    while below > 0 and above < degree:
        low, high = stack[below - 1], stack[above]
        threshold[low] = np.uint32(share[low] * _SCALE)
        alias[low] = high
        share[high] = (share[high] + share[low]) - 1.0
        below -= 1
        if share[high] < 1.0:
            above += 1
            stack[below] = high
            below += 1
    for i in range(below):  # these edges remain only because of rounding: their exact share is 1
        _keep(stack[i], threshold, alias)
    for i in range(above, degree):
        _keep(stack[i], threshold, alias)


@cpu_kernel
def _keep(j, threshold, alias):
    threshold[j] = np.uint32(0xFFFFFFFF)
    alias[j] = j


@cpu_kernel
def first_bad_weight(weights):
    """Return the position of the first weight that is negative or not finite, or -1."""
    for i in range(len(weights)):
        if not (weights[i] >= 0.0 and weights[i] < np.inf):
            return i
    return -1
