"""LABOR's decision: an edge is kept if the random word of its source is below the edge's threshold."""

import numpy as np

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.draws import wanted

CERTAIN = np.uint64(1 << 32)
"""Threshold of an edge with probability 1: every random word of 32 bits is below it."""

_B32 = np.uint64(32)


@shared
def even_threshold(degree, fanout):
    """Return the threshold at which a destination keeps ``fanout`` of ``degree`` edges on average: floor(2**32 fanout / degree), or ``CERTAIN``.

    A ``fanout`` below -1 is a share of the degree, see ``hoptrain.kernels.shared.draws.wanted``.
    """
    number = wanted(degree, fanout)
    if degree <= number:
        return CERTAIN
    return (np.uint64(number) << _B32) // np.uint64(degree)


@shared
def is_kept(word, threshold):
    """Return whether an edge is kept, which has the probability threshold / 2**32 exactly. ``word`` holds 32 bits."""
    return np.uint64(word) < np.uint64(threshold)
