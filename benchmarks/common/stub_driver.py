"""Stubs for the CUDA driver, with which the host's part of a bulk runs as on a device, and is counted and timed, without a GPU.

numba-cuda types and compiles kernels and prepares their arguments as for a launch. Operations that would be queued on the device are only counted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers.cuda.device_sampler import DeviceSampler

CAPABILITY = (9, 0)
_ADDRESS = 0x7F0000000000


@contextlib.contextmanager
def stubbed() -> Iterator[Counter[str]]:
    """Replace the driver's calls within the context, which yields the counts of launches, copies, allocations and synchronisations.

    It works neither with the CUDA simulator nor on a machine with a GPU.
    """
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
        (runtime.runtime, "get_version", lambda: (0, 0)),  # no real version, so that no real device uses kernels cached on disk with it
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
    """A stream that only counts the operations it is asked for."""

    def __init__(self, counts: Counter[str]) -> None:
        """Create a stream that counts its operations in ``counts``."""
        from numba.cuda.cudadrv import driver

        self._counts = counts
        self._torch = self._torch_stream = self._gpu = None
        self.numba = driver.Stream(driver.binding.CUstream(0x7000), external=True)

    def wait_for(self, other: DeviceStream) -> None:
        """Do nothing, since no stub has queued work to wait for."""

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """Return an array without memory."""
        self._counts["allocations"] += 1
        return _without_memory(shape, np.dtype(dtype))

    def tensor(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """Return a tensor of the given shape that takes the memory of one element."""
        from hoptrain.benchmarks.common.thin_tensor import thin

        self._counts["allocations"] += 1
        return thin(shape, dtype)

    def lend(self, array: Any, dtype: DTypeLike | None = None) -> Any:
        """Return an array without memory that stands for a tensor."""
        own = np.empty(0, str(array.dtype).removeprefix("torch.")).dtype
        words = own if dtype is None else np.dtype(dtype)
        return _without_memory((*array.shape[:-1], array.shape[-1] * own.itemsize // words.itemsize), words)

    def result(self, array: Any) -> Any:
        """Return a tensor of the array's shape that takes the memory of one element."""
        from hoptrain.benchmarks.common.thin_tensor import thin

        return thin(array.shape, array.dtype)

    def copies(self, arrays: Sequence[Any]) -> list[Any]:
        """Return tensors like ``arrays`` that take the memory of one element each, and count one allocation for all."""
        from hoptrain.benchmarks.common.thin_tensor import thin_like

        self._counts["allocations"] += 1
        return [thin_like(array.shape, array.dtype) for array in arrays]

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run a driver's work without counting it. Returns a function that counts a replay and fetches the sizes, also without counting."""
        driver: DeviceSampler[Any] = work.__self__  # type: ignore[attr-defined]
        self._unseen(work)

        def replay() -> None:
            self._counts["replays"] += 1
            self._unseen(driver._fetch_sizes)

        return replay

    def _unseen(self, work: Callable[[], None]) -> None:
        before = self._counts.copy()
        work()
        self._counts.clear()
        self._counts.update(before)

    def synchronize(self) -> None:
        """Count the call, and return at once."""
        self._counts["synchronisations"] += 1


@contextlib.contextmanager
def giving_sizes(sizes: Mapping[str, Any], counts: Counter[str]) -> Iterator[None]:
    """Within the context, let drivers fetch the given sizes of a bulk, by name. If the bulk has more mini-batches than sizes, the sizes are repeated."""
    rows_of: dict[tuple[Any, ...], tuple[list[int], Array]] = {}

    def fetch(driver: DeviceSampler[Any]) -> None:
        counts["device_to_host"] += 1
        names, number = driver.size_names, driver.num_batches
        if (names, number) not in rows_of:
            rows_of[names, number] = list(map(names.index, sizes)), np.stack([np.resize(values, number) for values in sizes.values()])
        rows, values = rows_of[names, number]
        driver._host_sizes[rows, :number] = values

    with mock.patch.object(DeviceSampler, "_fetch_sizes", fetch):
        yield


@contextlib.contextmanager
def feeding(counts: Counter[str]) -> Iterator[None]:
    """Within the context, allow creating a ``DeviceFeed`` without a GPU; its stream is a ``StubStream``."""
    where = "hoptrain.samplers.loader.device_feed"
    with mock.patch(f"{where}.DeviceStream", return_value=StubStream(counts)), mock.patch(f"{where}.check_cuda"):
        yield


def _without_memory(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    from numba.cuda.cudadrv import devicearray, driver

    shape = tuple(map(int, shape))
    strides = tuple(prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(len(shape)))
    size = max(1, prod(shape)) * dtype.itemsize
    memory = driver.MemoryPointer(None, driver.binding.CUdeviceptr(_ADDRESS), size, owner=object())
    return devicearray.DeviceNDArray(shape, strides, dtype, gpu_data=memory)
