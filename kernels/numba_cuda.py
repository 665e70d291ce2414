"""Import of numba-cuda with a workaround for NumPy 2.5. Import ``cuda`` from here, or import this module before ``numba.cuda``.

numba-cuda 0.30 needs ``numpy.row_stack``, which NumPy 2.5 no longer has; without the workaround its first compilation fails.
"""

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np

_ASKS = "numba.cuda.np.arrayobj"
"""Name of the module of numba-cuda that looks up ``numpy.row_stack`` when it is imported."""


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
