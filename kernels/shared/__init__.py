"""Decisions on scalars (which word, which neighbour), written once and compiled for the CPU and for CUDA.

Rules, each with a reason that was tested:

* Scalars in, scalars or tuples out: no array, no allocation, no exception. The CUDA simulator cannot unbox arrays here.
* No explicit signature, no ``parallel``, no ``cache``: a device twin cannot be made from such a function.
* Every constant is a ``uint64``: ``uint64 ^ 30`` becomes a signed ``int64`` in Numba.
* No floating point in a decision, so that it is equal to the bit on every target.
"""

from numba import njit

shared = njit(error_model="numpy")
inlined = njit(error_model="numpy", forceinline=True)
"""For what a loop is to run in vectors: a call that is left in its body keeps it scalar."""
