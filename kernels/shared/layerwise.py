"""Decisions of layer-wise sampling: the integer key that a vertex's probability is proportional to, and a draw by keys.

A key is made in two steps, so that a loop over edges only adds integers, in whatever order: every in-edge of a destination adds the
destination's *share* to its source; the sum is then turned into the source's key. Shares are in units of 1 / ``scale``, rounded up, so that
no edge has the probability 0.
"""

import numpy as np

from hoptrain.kernels.shared import shared

MEAN_SQUARED, GCN_SQUARED, MEAN = 0, 1, 2
"""What an edge u -> v adds, with degrees of entering edges: 1 / d_v**2, 1 / ((d_v + 1) (d_u + 1)), 1 / d_v."""

_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_B32 = np.uint64(32)


@shared
def destination_share(degree, scale, kind):
    """What each in-edge of a destination of ``degree`` > 0 adds to its source's sum, ``uint64``. ``scale`` is ``uint64``."""
    degree = np.uint64(degree)
    if kind == GCN_SQUARED:
        return np.uint64(scale) // (degree + _ONE) + _ONE
    share = np.uint64(scale) // degree
    return (share // degree if kind == MEAN_SQUARED else share) + _ONE


@shared
def source_key(total, degree, kind):
    """The key of a source of ``degree`` whose shares add up to ``total`` > 0, ``uint64``, at least 1."""
    if kind == GCN_SQUARED:
        return np.uint64(total) // (np.uint64(degree) + _ONE) + _ONE
    return np.uint64(total)


@shared
def wide_bounded(high, low, n):
    """An integer in [0, n) from 64 random bits in two words, by multiply-shift, ``uint64``; 0 < ``n`` < 2**63.

    Bias: each value has a probability within 2**-64 of 1 / n.
    """
    high, low, n = np.uint64(high), np.uint64(low), np.uint64(n)
    n_high, n_low = n >> _B32, n & _LOW
    middle = high * n_low + ((low * n_low) >> _B32)
    return high * n_high + (middle >> _B32) + ((low * n_high + (middle & _LOW)) >> _B32)
