"""LABOR's importances as integers: the bits (``uint64``) of the doubles in ``hoptrain.kernels.cpu.nodewise.importance``, bit-identical to them.

Positive doubles are ordered like their bits, so the maximum of doubles is a maximum of integers. The bits of 0.0 are 0.
"""

import numpy as np

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.double import double_of, over, plus, rounded, times
from hoptrain.kernels.shared.labor import CERTAIN

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN = np.uint64(1 << 52)
_B10 = np.uint64(10)
_B52 = np.uint64(52)
_ONE = np.uint64(1023 << 52)
_UNIT_BITS = 32

LONG, PIECES = 2048, 256


@shared
def pieces_of(degree):
    """Return the number of pieces in which a column is summed: each piece in order, then the sums of the pieces in order.

    The sizes of the pieces differ by at most one edge. So several threads can share a long column and compute the same sum.
    """
    return PIECES if degree > LONG else 1


@shared
def pair_of(bits):
    """Return the pair (mantissa, exponent) of a positive, normal double, given by its bits; see ``hoptrain.kernels.shared.double``."""
    return (np.uint64(bits) & _FRACTION) | _HIDDEN, np.int64(np.uint64(bits) >> _B52) - 1075


@shared
def bits_of(mantissa, exponent):
    """Return the bits of the double that a pair (mantissa, exponent) stands for."""
    return (np.uint64(exponent + 1075) << _B52) | (np.uint64(mantissa) & _FRACTION)


@shared
def inverse(x):
    """Return ``1 / x`` for a positive double given by its bits."""
    mantissa_1, exponent_1 = pair_of(_ONE)
    mantissa_x, exponent_x = pair_of(x)
    mantissa, exponent = over(mantissa_1, exponent_1, mantissa_x, exponent_x)
    return bits_of(mantissa, exponent)


@shared
def product(x, y):
    """Return ``x * y`` for positive doubles given by their bits."""
    if np.uint64(x) == _U0 or np.uint64(y) == _U0:
        return _U0
    mantissa_x, exponent_x = pair_of(x)
    mantissa_y, exponent_y = pair_of(y)
    mantissa, exponent = times(mantissa_x, exponent_x, mantissa_y, exponent_y)
    return bits_of(mantissa, exponent)


@shared
def total(x, y):
    """Return ``x + y`` for doubles given by their bits; ``y`` is not 0."""
    if np.uint64(x) == _U0:
        return np.uint64(y)
    mantissa_x, exponent_x = pair_of(x)
    mantissa_y, exponent_y = pair_of(y)
    mantissa, exponent = plus(mantissa_x, exponent_x, mantissa_y, exponent_y)
    return bits_of(mantissa, exponent)


@shared
def reaches_one(c, importance):
    """Return whether ``c * importance >= 1``, for doubles given by their bits."""
    return np.uint64(product(c, importance)) >= _ONE


@shared
def goal_of(degree, fanout):
    """Return the bits of ``degree * degree / fanout`` of two integers."""
    mantissa, exponent = double_of(degree)
    mantissa, exponent = times(mantissa, exponent, mantissa, exponent)
    mantissa_f, exponent_f = double_of(fanout)
    mantissa, exponent = over(mantissa, exponent, mantissa_f, exponent_f)
    return bits_of(mantissa, exponent)


@shared
def next_scale(rest, goal, count):
    """Return the bits of ``rest / (goal - count)``; ``count`` is an integer below ``goal``."""
    if np.uint64(rest) == _U0:
        return _U0
    mantissa_g, exponent_g = pair_of(goal)
    if count > 0:
        mantissa_c, exponent_c = double_of(count)
        mantissa_g, exponent_g = _minus(mantissa_g, exponent_g, mantissa_c, exponent_c)
    mantissa, exponent = pair_of(rest)
    mantissa, exponent = over(mantissa, exponent, mantissa_g, exponent_g)
    return bits_of(mantissa, exponent)


@shared
def _minus(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """Return ``a - b`` for a > b, for doubles given by their bits."""
    large, small = np.uint64(mantissa_a) << _B10, np.uint64(mantissa_b) << _B10
    shift = np.uint64(min(exponent_a - exponent_b, 63))
    difference, is_more = large - (small >> shift), (small >> shift) << shift != small
    if is_more:
        difference -= _U1
    return rounded(difference, exponent_a - 10, is_more, 53)


@shared
def threshold_of(c, importance):
    """Return the probability min(1, c * importance) as a threshold (``uint64``) in units of 1 / 2**32, at least 1."""
    probability = np.uint64(product(c, importance))
    if probability >= _ONE:
        return CERTAIN
    if probability == _U0:
        return _U1
    mantissa, exponent = pair_of(probability)
    shift = -(exponent + _UNIT_BITS)
    return max(_U1, np.uint64(mantissa) >> np.uint64(shift)) if shift < 64 else _U1
