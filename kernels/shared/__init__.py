"""Decisions on scalars (which word, which neighbour), written once and compiled for the CPU and for CUDA.

Rules, each with a reason that was tested:

* Scalars in, scalars or tuples out: no array, no allocation, no exception. The CUDA simulator cannot unbox arrays here.
* No explicit signature, no ``parallel``, no ``cache``: a device twin cannot be made from such a function.
* Every constant is a ``uint64``: ``uint64 ^ 30`` becomes a signed ``int64`` in Numba.
* No floating point in a decision, so that it is equal bit for bit on every target.
"""

from numba import njit

from hoptrain.kernels.bare import linked_bare


def shared(function, **options):
    """Compile a decision on scalars for the CPU; a CUDA kernel that calls it compiles it for the device."""
    return linked_bare(lambda **without: njit(function, error_model="numpy", **options, **without))


def inlined(function):
    """Compile a decision on scalars that a loop is to make for several at a time: a call that is left in its body would keep it scalar."""
    return shared(function, forceinline=True)
