"""Dropout whose random bits are a function of a seed and an element's index, so that the backward pass computes them again instead of storing them."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.dropout import BLOCK, CALLS
from hoptrain.kernels.shared.philox import four_words

_U0 = np.uint64(0)
_B16 = np.uint32(16)
_HALF = np.uint32(0xFFFF)


@cpu_kernel
def drop(x, out, seed, limit, scale, clip, first, last):
    """Compute ``out`` for blocks [first, last): ``x * scale``, or 0 where an element's 16 bits, as a number in [0, 65536), are below ``limit``.

    ``x`` and ``out`` (N,) are float32 or float64, ``seed`` is uint64, ``limit`` uint32, and ``scale`` has the dtype of ``x``. With ``clip``, elements of at
    most 0 become 0 too, as by ReLU. All inner loops are vectorised.
    """
    words = np.empty((4, CALLS), np.uint32)
    none = x.dtype.type(0)  # of the dtype of x: a comparison with an integer would convert each element to float64
    for block in range(first, last):
        begin = np.uint64(block * CALLS)
        for call in range(CALLS):
            word0, word1, word2, word3 = four_words(seed, _U0, _U0, _U0, begin + np.uint64(call), _U0)
            words[0, call], words[1, call], words[2, call], words[3, call] = word0, word1, word2, word3
        for eighth in range(8):
            shift = _B16 * np.uint32(eighth & 1)
            start = block * BLOCK + eighth * CALLS
            given, made = x[start : start + CALLS], out[start : start + CALLS]
            for call in range(len(given)):
                value = given[call]
                bits = (words[eighth >> 1, call] >> shift) & _HALF
                made[call] = none if bits < limit or (clip and value <= none) else value * scale


@cpu_kernel
def pass_gradient(gradient, out, scale, by_x, first, last):
    """Compute the gradient ``by_x`` of ``drop`` with ``clip`` for blocks [first, last), from its results ``out``; all arrays are (N,)."""
    none = gradient.dtype.type(0)
    # slices, since the compiler vectorises loops only over indices that it knows not to be negative
    given, made, kept = gradient[first * BLOCK : last * BLOCK], by_x[first * BLOCK : last * BLOCK], out[first * BLOCK : last * BLOCK]
    for i in range(len(kept)):
        passed = given[i] * scale  # computed for all elements, so that the loop has no branches
        made[i] = none if kept[i] <= none else passed
