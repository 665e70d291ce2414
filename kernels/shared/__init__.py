"""Scalar functions that decide a sample (which random word, which neighbour), compiled for both the CPU and CUDA.

Rules, each with a tested reason:

* Functions take scalars and return scalars or tuples, without arrays, allocation or exceptions. The CUDA simulator cannot unbox arrays here.
* No explicit signature, no ``parallel``, no ``cache``: Numba cannot compile such a function for a device.
* Every constant is a ``uint64``: ``uint64 ^ 30`` becomes a signed ``int64`` in Numba.
* No floating point in a decision, so that results are bit-identical on every target.
"""

from numba import njit

from hoptrain.kernels.bare import linked_bare


def shared(function, **options):
    """Compile a scalar function for the CPU. CUDA kernels that call it compile it for the device."""
    return linked_bare(lambda **without: njit(function, error_model="numpy", **options, **without))


def inlined(function):
    """Compile a scalar function that is always inlined. LLVM vectorises only loops whose body contains no call."""
    return shared(function, forceinline=True)
