"""Random words of numbered items, and random permutations, as pure functions of an address."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import HOP_SHUFFLE, four_words

_B32 = np.uint64(32)
_U0 = np.uint64(0)


def permutation(n, seed, epoch, hop=HOP_SHUFFLE):
    """Return a random permutation (n,) int64 of range(n): the order of 64 random bits per element. Ties (2**-64 per pair) keep their order."""
    return np.argsort(random_words(n, seed, epoch, 0, hop), kind="stable")


def random_words(n, seed, epoch, batch, hop):
    """Return 64 random bits for each index in range(n), (n,) uint64, from the stream ``hop``, one of ``HOP_*``."""
    words = np.empty(n, np.uint64)
    _fill(words, *map(np.uint64, (seed, epoch, batch, hop)))
    return words


@cpu_kernel
def _fill(words, seed, epoch, batch, hop):
    for i in range(len(words)):
        word0, word1, _, _ = four_words(seed, epoch, batch, hop, np.uint64(i), _U0)
        words[i] = (word0 << _B32) | word1
