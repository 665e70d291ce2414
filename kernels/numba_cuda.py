"""Imports numba-cuda so that it compiles with NumPy 2.5 too. What imports ``numba.cuda`` imports this first, or takes ``cuda`` from here.

numba-cuda 0.30 asks NumPy for ``row_stack``, which NumPy 2.5 no longer has, and would fail when it compiles its first kernel.
"""

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np

_ASKS = "numba.cuda.np.arrayobj"
"""The module of numba-cuda that asks for ``row_stack``, when it is imported."""


def _import():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The 'generic' unit for NumPy timedelta", DeprecationWarning)
        from numba import cuda
        from numba.core import config
    if cuda.implementation == "NVIDIA" and not config.ENABLE_CUDASIM and not hasattr(np, "row_stack"):
        np.row_stack = np.vstack
        try:
            importlib.import_module(_ASKS)
        finally:
            del np.row_stack
    return cuda


cuda: Any = None if importlib.util.find_spec("numba_cuda") is None else _import()
