"""numba-cuda with the driver's calls replaced by nothing: the host's part of a bulk runs as on a device, is counted and timed, and needs none.

Kernels are typed, compiled and given their arguments as for a launch; what would be queued on the device is counted instead.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine.device import DeviceStream

CAPABILITY = (9, 0)
_ADDRESS = 0x7F0000000000


@contextlib.contextmanager
def stubbed() -> Iterator[Counter[str]]:
    """Counts of launches, copies, allocations and synchronisations, while it lasts. Not in the simulator, and not where there is a device."""
    from cuda.core import _kernel_arg_handler
    from numba.cuda import dispatcher
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.cudadrv import devicearray, devices, runtime

    counts: Counter[str] = Counter()

    def launch(stream: Any, configuration: Any, kernel: Any, *arguments: Any) -> None:
        counts["launches"] += 1
        _kernel_arg_handler.ParamHolder(arguments)

    def copy(direction: str) -> Any:
        return lambda *_, **__: counts.update([direction])

    context = SimpleNamespace(device=SimpleNamespace(compute_capability=CAPABILITY))
    function = SimpleNamespace(kernel=object(), module=SimpleNamespace(initialized=True))
    replaced = (
        (devices._runtime, "get_or_create_context", lambda *_: context),
        (devices._runtime, "ensure_context", contextlib.nullcontext),
        (runtime.runtime, "get_version", lambda: (0, 0)),  # no device's: what is kept on disk meanwhile is for nobody else
        (CUDACodeLibrary, "get_cufunc", lambda library: library.get_cubin((*CAPABILITY, "")) and function),
        (dispatcher, "launch", launch),
        (devicearray._driver, "host_to_device", copy("host_to_device")),
        (devicearray._driver, "device_to_host", copy("device_to_host")),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(mock.patch("numba.cuda.pinned_array", np.zeros))
        yield counts


class StubStream(DeviceStream):
    """A stream on which nothing happens."""

    def __init__(self, counts: Counter[str]) -> None:
        """Count what is asked for in ``counts``."""
        from numba.cuda.cudadrv import driver

        self._counts = counts
        self._torch = self._torch_stream = None
        self.numba = driver.Stream(driver.binding.CUstream(0x7000), external=True)

    def wait_for(self, other: DeviceStream) -> None:
        """Nothing."""

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """An array without memory."""
        from numba.cuda.cudadrv import devicearray, driver

        self._counts["allocations"] += 1
        shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
        strides = tuple(int(np.prod(shape[axis + 1 :])) * dtype.itemsize for axis in range(len(shape)))
        size = max(1, int(np.prod(shape))) * dtype.itemsize
        memory = driver.MemoryPointer(None, driver.binding.CUdeviceptr(_ADDRESS), size, owner=object())
        return devicearray.DeviceNDArray(shape, strides, dtype, gpu_data=memory)

    def tensor(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """A tensor of one entry's memory."""
        self._counts["allocations"] += 1
        return _thin(shape, dtype)

    def result(self, array: Any) -> Any:
        """A tensor of one entry's memory, of the array's shape."""
        return _thin(array.shape, array.dtype)

    def copy(self, array: Any) -> Any:
        """The same."""
        self._counts["allocations"] += 1
        self._counts["clones"] += 1
        return array

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Let the work be done unseen; what queues it again is counted."""
        before = self._counts.copy()
        work()
        self._counts.clear()
        self._counts.update(before)
        return lambda: self._counts.update(["replays"])

    def synchronize(self) -> None:
        """Only counted."""
        self._counts["synchronisations"] += 1


def give_sizes(driver: Any, sizes: Mapping[str, Any], counts: Counter[str]) -> None:
    """In place of a driver's ``_fetch_sizes``: the sizes of a bulk by name, over and over if it has more mini-batches."""
    counts["device_to_host"] += 1
    for name, values in sizes.items():
        driver.host_size(name)[:] = np.resize(values, driver.num_batches)


def _thin(shape: Sequence[int], dtype: DTypeLike) -> Any:
    import torch

    return torch.from_numpy(np.empty(1, dtype)).expand(tuple(shape))
