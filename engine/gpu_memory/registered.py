"""Host memory registered with the CUDA driver, so that kernels of all contexts of the process can read it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.device import is_simulated
from hoptrain.engine.errors import one_line

_log = logging.getLogger(__name__)

PORTABLE, MAPPED, READ_ONLY = 1, 2, 8
"""Flags of the driver's ``cuMemHostRegister``."""


def registered(pages: Callable[[bool], Array]) -> Any | None:
    """Register the memory that ``pages`` maps, and return it as a device array for kernels of the current context.

    The memory stays registered while the array lives.

    Args:
        pages: function that maps the memory, writable if its argument is True. Drivers that cannot register read-only memory need a writable map.

    Returns:
        The device array; None if the driver refuses, in which case a warning is logged.
    """
    if is_simulated():
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        return FakeCUDAArray(pages(False))
    from numba import cuda
    from numba.cuda.cudadrv.driver import driver

    may_read_only = bool(cuda.current_context().device.READ_ONLY_HOST_REGISTER_SUPPORTED)
    for is_read_only in (True, False) if may_read_only else (False,):  # some drivers refuse read-only memory although they report support
        array = pages(not is_read_only)
        try:
            driver.cuMemHostRegister(array.ctypes.data, array.nbytes, PORTABLE | MAPPED | (READ_ONLY if is_read_only else 0))
        except Exception as error:  # the driver's exceptions have no common base class
            reason = one_line(error)
        else:
            weakref.finalize(array, _unregister, array.ctypes.data).atexit = False
            return cuda.as_cuda_array(_HostArray(array))
    _log.warning("shared host memory cannot be registered (%s): this rank makes its own copy", reason)
    return None


def _unregister(address: int) -> None:
    from numba import cuda
    from numba.cuda.cudadrv.driver import driver

    # the context, and with it the registration, may be gone
    with suppress(Exception):
        cuda.current_context().synchronize()  # waits for kernels that may still read the memory
    with suppress(Exception):
        driver.cuMemHostUnregister(address)


class _HostArray:
    """A wrapper with which kernels of Numba read a host array. On 64-bit Linux registered memory has the same address on device and host."""

    def __init__(self, array: Array) -> None:
        self._array = array  # a reference that lives as long as the device array that Numba creates
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, True), "version": 3
        }  # fmt: skip
