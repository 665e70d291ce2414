"""Weighted draws of seeds, in integer arithmetic. A draw is a function of the epoch and of its number."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.draws import bounded64
from hoptrain.kernels.shared.philox import HOP_SEEDS, four_words

_U0 = np.uint64(0)


@cpu_kernel
def draw_seeds(ends, draws, seed, epoch, places):
    """Fill ``places`` (m,) int64 with the index that each draw number in ``draws`` (m,) int64 selects; ``ends`` (N,) uint64 are cumulative weights."""
    for i in range(len(draws)):
        high, low, _, _ = four_words(seed, epoch, _U0, HOP_SEEDS, np.uint64(draws[i]), _U0)
        places[i] = np.searchsorted(ends, bounded64(high, low, ends[-1]), side="right")
