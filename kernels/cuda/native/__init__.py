"""CUDA C++ kernels (``*.cu``), compiled by NVRTC and launched by CuPy. Without CuPy, equivalent Numba kernels are used.

A launch passes only pointers and integers. CuPy allocates nothing, so its memory pool stays empty. It caches machine code in ``$CUPY_CACHE_DIR``
(default ``~/.cupy/kernel_cache``).
"""

import functools
import importlib
import importlib.util
from pathlib import Path

from numba.core import config

from hoptrain.kernels.cuda.compile import MAX_REGISTERS

OPTIONS = ("--std=c++17", f"--maxrregcount={MAX_REGISTERS}")
"""NVRTC options of all sources."""


def reason_against():
    """Return None if these kernels are used, otherwise the reason why not, with the remedy if there is one."""
    if config.ENABLE_CUDASIM:
        return "the simulator runs only Numba's kernels"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'hoptrain[cuda]')"
    return None


def source(name):
    """Return the source text of NAME.cu."""
    return Path(__file__).with_name(f"{name}.cu").read_text()


@functools.cache
def kernel_of(name, kernel):
    """Return a kernel of NAME.cu. Calling it with grid, block and arguments launches it on CuPy's current stream.

    It is compiled and loaded at its first launch on a device.
    """
    return _module_of(name).get_function(kernel)


def load(name):
    """Compile NAME.cu, or read it from the cache, and load it on the current device.

    Raises:
        Exception: CuPy, the compiler or the driver fails; the class depends on these.
    """
    _module_of(name).compile()


@functools.cache
def _module_of(name):
    return importlib.import_module("cupy").RawModule(code=source(name), options=OPTIONS)


def pointer(array):
    """Return the address of a contiguous array: a torch tensor, or an object with ``__cuda_array_interface__``.

    Raises:
        ValueError: the array is not contiguous.
    """
    if hasattr(array, "data_ptr"):  # for torch tensors data_ptr() is faster than __cuda_array_interface__
        address, contiguous = array.data_ptr(), array.is_contiguous()
    else:
        facts = array.__cuda_array_interface__
        address, contiguous = facts["data"][0], facts["strides"] is None
    if not contiguous:
        raise ValueError(f"an array of shape {tuple(array.shape)} is not contiguous: kernels need contiguous arrays; copy it first")
    return address
