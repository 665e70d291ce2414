"""Decisions of layer-wise sampling: the integer key that a node's probability is proportional to.

A key is made in two steps, so that a loop over edges only adds integers, in whatever order: every in-edge of a destination adds the
destination's *share* to its source; the sum is then turned into the source's key. Shares are in units of 1 / ``scale``, rounded up, so that
no edge has the probability 0.
"""

import numpy as np

from hoptrain.kernels.shared import shared

MEAN_SQUARED, GCN_SQUARED, MEAN = 0, 1, 2
"""What an edge u -> v adds, with degrees of entering edges: 1 / d_v**2, 1 / ((d_v + 1) (d_u + 1)), 1 / d_v."""

_ONE = np.uint64(1)


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
