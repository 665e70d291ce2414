"""The decorator of every CPU kernel."""

import numba
import numpy as np
from numba import njit

from hoptrain.kernels.bare import linked_bare
from hoptrain.kernels.lazy_modules import lazy_import
from hoptrain.kernels.machine_code import code_folder, kept_in

with lazy_import("scipy.linalg.cython_blas"):  # Numba only checks that this module exists; a kernel that calls BLAS would load it
    import numba.np.arraymath  # imported once here, since every kernel needs this module

_MODES = {"boundscheck": False, "error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
_COMPILER = f"numba{numba.__version__}-numpy{np.__version__}"


def cpu_kernel(function=None, *, parallel=False, reorders=False):
    """Compile a kernel for the CPU without GIL and bounds checks (callers validate), with C division and machine code cached on disk.

    With ``reorders``, the compiler may change the order of additions, so that it can vectorise the sum of a loop. Results then depend on the processor.
    """
    if function is None:
        return lambda f: cpu_kernel(f, parallel=parallel, reorders=reorders)
    fast = {"reassoc", "contract"} if reorders else False

    def make(**without):
        with kept_in(code_folder(function.__code__.co_filename, f"bare-{_COMPILER}" if without else _COMPILER)):
            return njit(function, cache=True, parallel=parallel, fastmath=fast, **_MODES | without)

    return linked_bare(make)
