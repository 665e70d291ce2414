"""CUDA C++ beside the Numba kernels: ``*.cu``, compiled by NVRTC, loaded and launched by CuPy; Numba's kernels do the same where it is absent.

A launch takes pointers and integers: no array is looked at, and CuPy allocates nothing, so that its memory pool stays empty. It keeps
machine code in ``$CUPY_CACHE_DIR`` (default ``~/.cupy/kernel_cache``).
"""

import functools
import importlib
import importlib.util
from pathlib import Path

from numba.core import config

from hoptrain.kernels.cuda.compile import MAX_REGISTERS

OPTIONS = ("--std=c++17", f"--maxrregcount={MAX_REGISTERS}")
"""NVRTC's, of all sources."""


def reason_against():
    """None where these kernels are used, else in a few words why not, with the remedy if there is one."""
    if config.ENABLE_CUDASIM:
        return "the simulator runs Numba's kernels only"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'hoptrain[cuda]')"
    return None


def source(name):
    """The text of NAME.cu."""
    return Path(__file__).with_name(f"{name}.cu").read_text()


@functools.cache
def kernel_of(name, kernel):
    """A kernel of NAME.cu as CuPy's: called with grid, block and arguments it is launched on CuPy's current stream.

    It is compiled and loaded for a device when it is launched there first.
    """
    return _module_of(name).get_function(kernel)


def load(name):
    """Compile NAME.cu, or read what is kept of it, and load it on the current device.

    Raises:
        Exception: of whatever kind CuPy, the compiler or the driver have.
    """
    _module_of(name).compile()


@functools.cache
def _module_of(name):
    return importlib.import_module("cupy").RawModule(code=source(name), options=OPTIONS)


def pointer(array):
    """The address of a contiguous array: torch's, or whatever tells it by ``__cuda_array_interface__``.

    Raises:
        ValueError: it is not contiguous.
    """
    if hasattr(array, "data_ptr"):  # torch's, the quick way
        address, contiguous = array.data_ptr(), array.is_contiguous()
    else:
        facts = array.__cuda_array_interface__
        address, contiguous = facts["data"][0], facts["strides"] is None
    if not contiguous:
        raise ValueError(f"an array of shape {tuple(array.shape)} is not contiguous: kernels take it as if it were; copy it before")
    return address
