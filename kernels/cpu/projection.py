"""A very sparse random projection (Li, Hastie, Church 2006): an entry is 0 with probability 3/4, and 1 or -1 with probability 1/8 each."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.draws import word_at
from hoptrain.kernels.shared.philox import HOP_FEATURES, four_words

ENTRIES_A_GROUP = 32
"""Number of matrix entries that are computed from four random words. An entry has four bits: two decide whether it is zero, one is the sign."""
_U0 = np.uint64(0)
_U3 = np.uint64(3)
_U4 = np.uint64(4)


@cpu_kernel
def sparse_signs(out, seed):
    """Fill ``out`` (V, C) float32, C a multiple of ``ENTRIES_A_GROUP``. An entry is a function of the seed (uint64), its row and its column."""
    for row in range(out.shape[0]):
        for group in range(out.shape[1] // ENTRIES_A_GROUP):
            word0, word1, word2, word3 = four_words(seed, _U0, _U0, HOP_FEATURES, np.uint64(row), np.uint64(group))
            for lane in range(4):
                word = word_at(lane, word0, word1, word2, word3)
                for place in range(8):
                    bits = word >> (_U4 * np.uint64(place))
                    value = np.float32(0) if bits & _U3 else np.float32(1) - np.float32((bits >> np.uint64(1)) & np.uint64(2))
                    out[row, group * ENTRIES_A_GROUP + lane * 8 + place] = value
