"""From random words to decisions."""

import numpy as np

from hoptrain.kernels.shared import shared

_B32 = np.uint64(32)


@shared
def bounded(word, n):
    """An integer in [0, n) from 32 random bits, by multiply-shift (Lemire 2019, without the rejection).

    Bias: each value has a probability within 2**-32 of 1/n, so a relative error of at most n / 2**32; for a vertex with a million
    neighbours that is 0.03 %. ``word`` and ``n`` are ``uint64``, n < 2**32; returns ``int64``.
    """
    return np.int64((word * n) >> _B32)
