"""Integer keys of layer-wise sampling; the probability of a node is proportional to its key.

A key is computed in two steps, so that the loop over edges only adds integers, in any order. First, every in-edge of a destination adds the
destination's *share* to its source. Then the sum is converted to the source's key. Shares are in units of 1 / ``scale`` and rounded up, so that no
edge has probability 0.
"""

import numpy as np

from hoptrain.kernels.shared import shared

MEAN_SQUARED, GCN_SQUARED, MEAN = 0, 1, 2
"""Contributions of an edge u -> v to the key of u, with in-degrees d: 1 / d_v**2, 1 / ((d_v + 1) (d_u + 1)), 1 / d_v, in this order."""

_ONE = np.uint64(1)


@shared
def destination_share(degree, scale, kind):
    """Return the share (``uint64``) that each in-edge of a destination of ``degree`` > 0 adds to its source. ``scale`` is ``uint64``."""
    degree = np.uint64(degree)
    if kind == GCN_SQUARED:
        return np.uint64(scale) // (degree + _ONE) + _ONE
    share = np.uint64(scale) // degree
    return (share // degree if kind == MEAN_SQUARED else share) + _ONE


@shared
def source_key(total, degree, kind):
    """Return the key (``uint64``, at least 1) of a source of ``degree`` whose shares add up to ``total`` > 0."""
    if kind == GCN_SQUARED:
        return np.uint64(total) // (np.uint64(degree) + _ONE) + _ONE
    return np.uint64(total)
