"""Dropout whose random bits are a function of a seed and an element's index: the Numba version of ``native/dropout.cu``. It has no 16-bit types."""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.shared.draws import word_at
from hoptrain.kernels.shared.dropout import BLOCK, CALLS, num_calls
from hoptrain.kernels.shared.philox import four_words

_U0 = np.uint64(0)
_CHOICES = 1 << 16


def drop(launch, x, out, seed, dropped, *, clip):
    """Write ``x * scale`` to ``out``, or 0 where an element is dropped. Arguments are those of ``native.dropout.drop``, as arrays (N,)."""
    launch.flat(drop_elements, num_calls(len(x)), x, out, np.uint64(seed % 2**64), np.uint64(dropped), _scale(x, dropped), np.int64(clip))


def pass_gradient(launch, gradient, out, by_x, dropped):
    """Write the gradient of ``drop`` with ``clip`` to ``by_x``. Arguments are those of ``native.dropout.pass_gradient``, as arrays (N,)."""
    launch.flat(pass_positive, len(out), gradient, out, by_x, _scale(out, dropped))


def _scale(x, dropped):
    return x.dtype.type(_CHOICES / (_CHOICES - dropped))


@device_function
def first_element(call):
    """Return the first of the eight elements of a call."""
    return call // CALLS * BLOCK + call % CALLS


@cuda_kernel("void(float32[::1], float32[::1], uint64, uint64, float32, int64)")
def drop_elements(x, out, seed, dropped, scale, clip):
    """Compute the elements of a call of Philox for each thread, see ``drop``."""
    none = x.dtype.type(0)
    calls = (len(x) + BLOCK - 1) // BLOCK * CALLS
    for call in range(cuda.grid(1), calls, cuda.gridsize(1)):
        word0, word1, word2, word3 = four_words(seed, _U0, _U0, _U0, np.uint64(call), _U0)
        first = first_element(call)
        for eighth in range(8):
            i = first + CALLS * eighth
            if i < len(x):
                word = word_at(eighth >> 1, word0, word1, word2, word3)
                bits = (np.uint64(word) >> np.uint64(16 * (eighth & 1))) & np.uint64(_CHOICES - 1)
                value = x[i]
                out[i] = none if bits < dropped or (clip != 0 and value <= none) else value * scale


@cuda_kernel("void(float32[::1], float32[::1], float32[::1], float32)")
def pass_positive(gradient, out, by_x, scale):
    """Compute an element for each thread, see ``pass_gradient``."""
    none = out.dtype.type(0)
    for i in range(cuda.grid(1), len(out), cuda.gridsize(1)):
        by_x[i] = none if out[i] <= none else gradient[i] * scale
