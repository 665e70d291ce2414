"""A CUDA stream and the arrays of its kernels, in device memory or in pinned host memory.

numba-cuda and torch are imported only when a function needs them. If torch is imported, device memory comes from its caching allocator, so that sampler
and training share one pool; otherwise from Numba.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine.arrays import BFLOAT16, Array
from hoptrain.engine.device import check_cuda, default_gpu, is_simulated, torch_on_device


class DeviceStream:
    """A CUDA stream for kernels of Numba. If torch is imported, it is a stream of torch that Numba wraps."""

    def __init__(self, gpu: int | None = None) -> None:
        """Create a stream on the GPU with index ``gpu``, by default ``default_gpu()``.

        Raises:
            InputError: CUDA cannot be used.
        """
        check_cuda(gpu)
        from numba import cuda

        self._torch = torch_on_device()
        self._gpu = None if is_simulated() else default_gpu() if gpu is None else gpu
        with self.entered():
            # priority 0 is CUDA's lowest, so sampling cannot have a lower priority than training on the default stream
            self._torch_stream = self._torch.cuda.Stream(self._gpu) if self._torch else None
            self._device = self._torch_stream.device if self._torch_stream else None
            self.numba: Any = cuda.external_stream(self._torch_stream.cuda_stream) if self._torch_stream else cuda.stream()

    @property
    def torch_device(self) -> Any:
        """The GPU as a torch device; "cpu" in the simulator, which uses host memory."""
        return self._device if self._torch else "cpu"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the stream's GPU current in this thread for the body. In a new thread GPU 0 is current."""
        if self._gpu is None:
            yield
            return
        from numba import cuda

        # Numba uses the current context; torch would restore the device it has recorded, not the current one
        with self._torch.cuda.device(self._gpu) if self._torch else cuda.gpus[self._gpu]:
            yield

    def wait_for(self, other: DeviceStream) -> None:
        """Make later work on this stream wait for the work queued on ``other``."""
        if self._torch_stream:
            self._torch_stream.wait_stream(other._torch_stream)
            return
        from numba import cuda

        event = cuda.event()
        event.record(other.numba)
        event.wait(self.numba)

    def wait_for_torch(self) -> None:
        """Make later work on this stream wait for the work that torch has queued, which may still read memory that is reused."""
        if self._torch_stream:
            self._torch_stream.wait_stream(self._torch.cuda.current_stream(self._device))

    def hand_to_torch(self, *arrays: Any) -> None:
        """Make torch's later work wait for the work queued here; until then torch's allocator keeps the memory of ``arrays``.

        The latter requires tensors that torch allocated (``tensor``, ``copies``). It does not hold for tensors that wrap Numba's arrays (``result``).
        """
        if self._torch_stream:
            current = self._torch.cuda.current_stream(self._device)
            current.wait_stream(self._torch_stream)
            for array in arrays:
                array.record_stream(current)

    def torch_queued(self) -> Callable[[], None]:
        """Return a function that waits for the work that torch has queued so far; without torch it does nothing."""
        if not self._torch_stream:
            return lambda: None
        wait: Callable[[], None] = self._torch.cuda.current_stream(self._device).record_event().synchronize
        return wait

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """Return a Numba device array of undefined contents, for kernels of this stream."""
        from numba import cuda

        shape, dtype = tuple(shape), np.dtype(dtype)
        if not self._torch_stream:
            return cuda.device_array(shape, dtype)
        with self._torch.cuda.stream(self._torch_stream):
            memory = self._torch.empty(max(1, int(np.prod(shape))) * dtype.itemsize, dtype=self._torch.uint8, device=self._device)
        return cuda.as_cuda_array(memory).view(dtype)[: int(np.prod(shape))].reshape(shape)

    def tensor(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """Return memory of undefined contents for users: a torch tensor; without torch a Numba device array; a NumPy array in the simulator."""
        if self._torch:
            with self._torch.cuda.stream(self._torch_stream):
                return self._torch.empty(tuple(shape), dtype=_torch_dtype(self._torch, np.dtype(dtype)), device=self._device)
        return np.empty(shape, dtype) if is_simulated() else self.empty(shape, dtype)

    def lend(self, array: Any, dtype: DTypeLike | None = None) -> Any:
        """Return a user's array in the form that kernels take, not copied. With ``dtype`` a matrix is viewed with that dtype, which must divide its rows."""
        if self._torch and isinstance(array, self._torch.Tensor):
            from numba import cuda

            return cuda.as_cuda_array(array) if dtype is None else cuda.as_cuda_array(array.view(self._torch.uint8)).view(dtype)
        return array if dtype is None else array.view(dtype)

    def result(self, array: Any) -> Any:
        """Return a device array for users, without a copy: a torch tensor; without torch a Numba device array; a NumPy array in the simulator."""
        if self._torch and array.dtype == BFLOAT16:
            return self._torch.as_tensor(array.view(np.int16), device=self._device).view(self._torch.bfloat16)
        if self._torch:
            return self._torch.as_tensor(array, device=self._device)
        return array.copy_to_host() if is_simulated() else array

    def copies(self, arrays: Sequence[Any]) -> list[Any]:
        """Return copies of device arrays for users, of the same types as ``result``. torch makes one copy of all arrays, and the results are views of it."""
        if self._torch:
            with self._torch.cuda.stream(self._torch_stream):
                return _joint_copy(self._torch, [self._torch.as_tensor(array, device=self._device) for array in arrays])
        if is_simulated():
            return [array.copy() if isinstance(array, np.ndarray) else array.copy_to_host() for array in arrays]
        made = [self.empty(array.shape, array.dtype) for array in arrays]
        for new, array in zip(made, arrays, strict=True):
            new.copy_to_device(array, stream=self.numba)
        return made

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """Capture the work that ``work`` queues as a CUDA graph. Return a function that queues it in one call; None in the simulator.

        Capturing queues nothing. Host code in ``work`` runs once, now. It must not synchronise, allocate or free memory, so Python's garbage collector is
        paused. The driver captures, not torch, because a failed capture would corrupt torch's state.

        Raises:
            RuntimeError: the driver cannot capture the work.
        """
        if self._gpu is None:
            return None
        from cuda.bindings import driver

        stream = driver.CUstream(int(self.numba.handle))
        with self.entered(), _without_garbage_collection():
            _ask(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            try:
                work()
            except BaseException:
                driver.cuStreamEndCapture(stream)  # ends the capture; this call fails, too, if the capture is invalid
                raise
            graph = _ask(driver.cuStreamEndCapture, stream)
            whole = _ask(driver.cuGraphInstantiate, graph, 0)
            _ask(driver.cuGraphDestroy, graph)

        def replay() -> None:
            _ask(driver.cuGraphLaunch, whole, stream)

        weakref.finalize(replay, driver.cuGraphExecDestroy, whole).atexit = False  # the driver frees graphs at process exit anyway
        return replay

    def synchronize(self) -> None:
        """Wait for all work queued on this stream."""
        self.numba.synchronize()


def _joint_copy(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """Copy tensors with one kernel to one allocation, except for those that are empty, have gaps, or do not consist of 32-bit words."""
    joint = [tensor for tensor in tensors if tensor.numel() and tensor.is_contiguous() and tensor.itemsize % 4 == 0]
    joint.sort(key=lambda tensor: -tensor.itemsize)  # so that 8-byte numbers are aligned
    if not joint:
        return [tensor.clone() for tensor in tensors]
    words = [tensor.view(-1).view(torch.int32) for tensor in joint]
    parts = torch.cat(words).split([len(part) for part in words])
    made = {id(tensor): part.view(tensor.dtype).view(tensor.shape) for tensor, part in zip(joint, parts, strict=True)}
    return [made[id(tensor)] if id(tensor) in made else tensor.clone() for tensor in tensors]


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a driver function and return its result without the error code.

    Raises:
        RuntimeError: the driver returned an error.
    """
    error, *given = function(*arguments)
    if error:
        raise RuntimeError(f"{function.__name__}: {error.name} of the driver")
    return given[0] if given else None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _torch_dtype(torch: Any, dtype: np.dtype[Any]) -> Any:
    return torch.bfloat16 if dtype == BFLOAT16 else torch.from_numpy(np.empty(0, dtype)).dtype


def to_host(array: Any) -> Array:
    """Return a NumPy array unchanged, and a copy on the host of a Numba device array or tensor."""
    if not isinstance(array, np.ndarray):
        array = array.copy_to_host() if hasattr(array, "copy_to_host") else array.cpu().numpy()
    host: Array = array
    return host


class Buffers:
    """A pool of device arrays by name. They grow to the largest shape requested and are reused, so repeated work allocates nothing.

    Attributes:
        version: number of allocations so far, which changes if an array may have moved.
    """

    def __init__(self, stream: DeviceStream, block: int = 256) -> None:
        """Start empty. ``block`` is the number of threads per block of copy kernels."""
        self._stream, self._block = stream, block
        self._arrays: dict[str, Any] = {}
        self._pinned: dict[str, Array] = {}
        self.version = 0

    def array(self, name: str, shape: Sequence[int], dtype: DTypeLike, *, keep: bool = False) -> Any:
        """Return an array of at least ``shape``, never empty, of undefined contents. With ``keep`` it is a matrix that keeps its contents when it grows.

        Kept arrays are zero at first, because growing copies whole rows, even entries that no kernel has written.
        """
        shape = [max(1, asked) for asked in shape]
        old = self._arrays.get(name)
        if old is not None and old.dtype == dtype and all(has >= asked for has, asked in zip(old.shape, shape, strict=True)):
            return old
        if old is not None:
            shape = [max(has, asked) for has, asked in zip(old.shape, shape, strict=True)]
        new = self._stream.empty(shape, dtype)
        if keep:
            from hoptrain.kernels.cuda.rows import copy_rows, fill_rows

            def blocks(matrix: Any) -> tuple[int, int]:
                return min(64, -(-matrix.shape[1] // self._block)), matrix.shape[0]

            fill_rows[blocks(new), self._block, self._stream.numba, 0](new, 0)
            if old is not None:
                copy_rows[blocks(old), self._block, self._stream.numba, 0](old, new)
        self._arrays[name] = new
        self.version += 1
        return new

    def pinned(self, name: str, like: Any) -> Array:
        """Return a pinned host array of a device array's shape and dtype, for asynchronous copies."""
        old = self._pinned.get(name)
        if old is None or old.shape != tuple(like.shape) or old.dtype != like.dtype:
            from numba import cuda

            self._pinned[name] = old = cuda.pinned_array(tuple(like.shape), like.dtype)
            self.version += 1
        return old

    def uploaded(self, name: str, rows: Sequence[Array], dtype: DTypeLike, width: int) -> Any:
        """Return a device matrix (len(rows), ``width`` or more) whose rows begin with ``rows``. The copy from pinned memory is asynchronous."""
        matrix = self.array(name, (len(rows), width), dtype)
        host = self.pinned(name, matrix)
        self.fill(name, rows)
        matrix.copy_to_device(host, stream=self._stream.numba)
        return matrix

    def fill(self, name: str, rows: Sequence[Array]) -> None:
        """Write ``rows`` to the beginnings of the rows of the pinned buffer that ``uploaded`` copies to the device. A replayed copy reads this buffer, too."""
        for target, row in zip(self._pinned[name], rows, strict=False):
            target[: len(row)] = row

    def __contains__(self, name: str) -> bool:
        return name in self._arrays
