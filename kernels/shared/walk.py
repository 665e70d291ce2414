"""One step of a random walk that may end."""

import numpy as np

from hoptrain.kernels.shared import shared

_B32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@shared
def next_step(word, degree, stop):
    """Return the offset of the next node in a column of ``degree`` > 0 edges, and whether the walk continues from there.

    Both come from one word of 32 bits: the upper half of its product with the degree is the offset, the lower half is compared with ``stop``
    (``uint64``, in units of 1 / 2**32). The offset has the bias of ``bounded``; given the offset, the walk ends with a probability within degree /
    2**32 of stop / 2**32.
    """
    product = np.uint64(word) * np.uint64(degree)
    return np.int64(product >> _B32), (product & _LOW) >= stop
