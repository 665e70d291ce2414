"""Independent draws of seeds by importance, in integer arithmetic."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.draws import bounded, bounded64
from hoptrain.kernels.shared.philox import HOP_LARGE_BATCH, four_words

_U0 = np.uint64(0)


@cpu_kernel
def draw_seeds(ends, even, seed, epoch, batch, drawn):
    """Fill ``drawn`` (m,) int64 with independent draws from range(n).

    A draw is uniform with probability ``even`` / 2**32 (``uint64``); otherwise it is weighted by shares, whose cumulative sums are ``ends`` (n,) uint64.
    """
    for draw in range(len(drawn)):
        choice, word, high, low = four_words(seed, epoch, batch, HOP_LARGE_BATCH, np.uint64(draw), _U0)
        if choice < even:
            drawn[draw] = bounded(word, len(ends))
        else:
            drawn[draw] = np.searchsorted(ends, bounded64(high, low, ends[-1]), side="right")
