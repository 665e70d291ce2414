"""Weighted draws without replacement: the limit of attempts with replacement, and integer weights for the draws after that limit."""

import numpy as np

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.double import over, rounded

_U0 = np.uint64(0)
_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN = np.uint64(1 << 52)
_B52 = np.uint64(52)
_SCALE_BITS = 31


@shared
def most_attempts(fanout):
    """Return the number of draws with replacement after which the column is scanned instead."""
    return 4 * fanout + 32


@shared
def weight_share(weight, largest):
    """Return ``uint64(weight / largest * 2**31)``, computed in doubles.

    Args:
        weight: Bits (``uint64``) of a float64 in [0, largest].
        largest: Bits (``uint64``) of a positive float64.
    """
    if np.uint64(weight) == _U0:
        return _U0
    mantissa_a, exponent_a = _pair(weight)
    mantissa_b, exponent_b = _pair(largest)
    mantissa, exponent = over(mantissa_a, exponent_a, mantissa_b, exponent_b)
    shift = -(exponent + _SCALE_BITS)
    return np.uint64(mantissa) >> np.uint64(shift) if shift < 64 else _U0


@shared
def _pair(bits):
    """Return the pair (mantissa, exponent) of a float64 given by its bits; see ``hoptrain.kernels.shared.double``."""
    power, fraction = np.int64(np.uint64(bits) >> _B52), np.uint64(bits) & _FRACTION
    if power == 0:
        return rounded(fraction, np.int64(-1074), False, 53)
    return fraction | _HIDDEN, power - 1075
