"""Host memory of any kind as kernels read it: registered with the driver, for all contexts of the process."""

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
"""The driver's flags of ``cuMemHostRegister``."""


def registered(pages: Callable[[bool], Array]) -> Any | None:
    """What ``pages`` maps, as a device array for kernels of the current context; registered as long as it lives.

    Args:
        pages: maps the memory, for reading alone where it is given False, else for writing as well: a driver that cannot register what is only
            read needs that.

    Returns:
        The device array; None where the driver refuses, which is said.
    """
    if is_simulated():
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        return FakeCUDAArray(pages(False))
    from numba import cuda
    from numba.cuda.cudadrv.driver import driver

    may_read_only = bool(cuda.current_context().device.READ_ONLY_HOST_REGISTER_SUPPORTED)
    for is_read_only in (True, False) if may_read_only else (False,):  # some drivers refuse what they say they support
        array = pages(not is_read_only)
        try:
            driver.cuMemHostRegister(array.ctypes.data, array.nbytes, PORTABLE | MAPPED | (READ_ONLY if is_read_only else 0))
        except Exception as error:  # the driver's own errors have no common class
            reason = one_line(error)
        else:
            weakref.finalize(array, _unregister, array.ctypes.data).atexit = False
            return cuda.as_cuda_array(_HostArray(array))
    _log.warning("shared host memory cannot be registered (%s): this rank makes a copy of its own", reason)
    return None


def _unregister(address: int) -> None:
    from numba import cuda
    from numba.cuda.cudadrv.driver import driver

    # The context may be gone, and the registration with it.
    with suppress(Exception):
        cuda.current_context().synchronize()  # kernels may still read it
    with suppress(Exception):
        driver.cuMemHostUnregister(address)


class _HostArray:
    """An array for Numba, which keeps it. Registered memory has the same address for the device as for the host, on every 64-bit Linux."""

    def __init__(self, array: Array) -> None:
        self._array = array  # lives as long as what Numba makes of this
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, True), "version": 3
        }  # fmt: skip
