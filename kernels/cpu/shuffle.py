"""Random words of numbered items, and the permutation that sorts them, as pure functions of an address."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.philox import HOP_SHUFFLE, four_words

_B32 = np.uint64(32)
_U0 = np.uint64(0)


def permutation(n, seed, epoch, hop=HOP_SHUFFLE):
    """The permutation (n,) int64 of range(n) that sorts 64 random bits per element; ties (2**-64 a pair) go by the element."""
    return np.argsort(random_words(n, seed, epoch, 0, hop), kind="stable")


def random_words(n, seed, epoch, batch, hop):
    """(n,) uint64: 64 random bits for each of range(n), in the stream named by ``hop``, one of ``HOP_*``."""
    words = np.empty(n, np.uint64)
    _fill(words, *map(np.uint64, (seed, epoch, batch, hop)))
    return words


@cpu_kernel
def _fill(words, seed, epoch, batch, hop):
    for i in range(len(words)):
        word0, word1, _, _ = four_words(seed, epoch, batch, hop, np.uint64(i), _U0)
        words[i] = (word0 << _B32) | word1
