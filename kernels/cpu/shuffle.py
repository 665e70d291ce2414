"""A permutation as a pure function of (seed, epoch)."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import HOP_SHUFFLE, four_words

_B32 = np.uint64(32)
_U0 = np.uint64(0)


def permutation(n, seed, epoch):
    """The permutation (n,) int64 of range(n) that sorts 64 random bits per element; ties (2**-64 a pair) go by the element."""
    keys = np.empty(n, np.uint64)
    _random_keys(keys, np.uint64(seed), np.uint64(epoch))
    return np.argsort(keys, kind="stable")


@cpu_kernel
def _random_keys(keys, seed, epoch):
    for i in range(len(keys)):
        word0, word1, _, _ = four_words(seed, epoch, _U0, HOP_SHUFFLE, np.uint64(i), _U0)
        keys[i] = (word0 << _B32) | word1
