"""A CUDA stream with the arrays of its kernels: in the device's memory, or in pinned host memory that the device reads.

Nothing here imports numba-cuda or torch before it is called for. Where torch is in the process already, device memory comes from its caching
allocator, so that sampler and training share one pool; else from Numba.
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
    """A CUDA stream: Numba's, or one of torch's under the name that Numba gives it."""

    def __init__(self, gpu: int | None = None) -> None:
        """Make a stream on a GPU, by its number; by default that of ``default_gpu``.

        Raises:
            InputError: CUDA cannot be used.
        """
        check_cuda(gpu)
        from numba import cuda

        self._torch = torch_on_device()
        self._gpu = None if is_simulated() else default_gpu() if gpu is None else gpu
        with self.entered():
            # Of priority 0, the lowest that CUDA has: nothing can stand behind a training on the default stream.
            self._torch_stream = self._torch.cuda.Stream(self._gpu) if self._torch else None
            self._device = self._torch_stream.device if self._torch_stream else None
            self.numba: Any = cuda.external_stream(self._torch_stream.cuda_stream) if self._torch_stream else cuda.stream()

    @property
    def torch_device(self) -> Any:
        """The GPU as torch names it; "cpu" if simulated, where memory is the host's."""
        return self._device if self._torch else "cpu"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the stream's GPU be the current one of this thread meanwhile; a new thread's is GPU 0."""
        if self._gpu is None:
            yield
            return
        from numba import cuda

        # Numba takes the context that it finds; torch sets back the device that it knows of, not the one that is current.
        with self._torch.cuda.device(self._gpu) if self._torch else cuda.gpus[self._gpu]:
            yield

    def wait_for(self, other: DeviceStream) -> None:
        """What is queued here from now on runs after what was queued there."""
        if self._torch_stream:
            self._torch_stream.wait_stream(other._torch_stream)
            return
        from numba import cuda

        event = cuda.event()
        event.record(other.numba)
        event.wait(self.numba)

    def wait_for_torch(self) -> None:
        """What is queued here from now on runs after what torch has queued: it may still read memory that will be used again."""
        if self._torch_stream:
            self._torch_stream.wait_stream(self._torch.cuda.current_stream(self._device))

    def hand_to_torch(self, *arrays: Any) -> None:
        """What torch queues from now on runs after what was queued here; its allocator keeps the memory of ``arrays`` until that is done.

        That holds for memory that torch's allocator gave to these very tensors (``tensor``, ``copy``): of one made from an array of Numba's
        (``result``) it knows nothing.
        """
        if self._torch_stream:
            current = self._torch.cuda.current_stream(self._device)
            current.wait_stream(self._torch_stream)
            for array in arrays:
                array.record_stream(current)

    def torch_queued(self) -> Callable[[], None]:
        """Return a function that waits until torch has done what it has queued so far; without torch it does nothing."""
        if not self._torch_stream:
            return lambda: None
        wait: Callable[[], None] = self._torch.cuda.current_stream(self._device).record_event().synchronize
        return wait

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """A device array (Numba's interface) of undefined contents, for kernels of this stream."""
        from numba import cuda

        shape, dtype = tuple(shape), np.dtype(dtype)
        if not self._torch_stream:
            return cuda.device_array(shape, dtype)
        with self._torch.cuda.stream(self._torch_stream):
            memory = self._torch.empty(max(1, int(np.prod(shape))) * dtype.itemsize, dtype=self._torch.uint8, device=self._device)
        return cuda.as_cuda_array(memory).view(dtype)[: int(np.prod(shape))].reshape(shape)

    def tensor(self, shape: Sequence[int], dtype: DTypeLike) -> Any:
        """Memory of undefined contents as users get it: a torch tensor; without torch Numba's device array; NumPy's if simulated."""
        if self._torch:
            with self._torch.cuda.stream(self._torch_stream):
                return self._torch.empty(tuple(shape), dtype=_torch_dtype(self._torch, np.dtype(dtype)), device=self._device)
        return np.empty(shape, dtype) if is_simulated() else self.empty(shape, dtype)

    def lend(self, array: Any, dtype: DTypeLike | None = None) -> Any:
        """What users get as kernels take it, without a copy; a matrix as rows of another ``dtype`` that divides them."""
        if self._torch and isinstance(array, self._torch.Tensor):
            from numba import cuda

            return cuda.as_cuda_array(array) if dtype is None else cuda.as_cuda_array(array.view(self._torch.uint8)).view(dtype)
        return array if dtype is None else array.view(dtype)

    def result(self, array: Any) -> Any:
        """The array as users get it, without a copy: a torch tensor; without torch Numba's device array; NumPy's if simulated."""
        if self._torch and array.dtype == BFLOAT16:
            return self._torch.as_tensor(array.view(np.int16), device=self._device).view(self._torch.bfloat16)
        if self._torch:
            return self._torch.as_tensor(array, device=self._device)
        return array.copy_to_host() if is_simulated() else array

    def copy(self, array: Any) -> Any:
        """The array as users get it, in memory of its own."""
        if self._torch:
            with self._torch.cuda.stream(self._torch_stream):
                return self._torch.as_tensor(array, device=self._device).clone()
        if is_simulated():
            return array.copy() if isinstance(array, np.ndarray) else array.copy_to_host()
        new = self.empty(array.shape, array.dtype)
        new.copy_to_device(array, stream=self.numba)
        return new

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What queues all that ``work`` would queue, in one call (a CUDA graph); None in the simulator. Nothing is queued yet.

        What ``work`` does on the host is done now, and not again. It must not wait, and not ask for memory or give any back: Python's garbage
        collector waits until it is done. The driver captures, not torch, whose state a capture that fails would spoil.

        Raises:
            RuntimeError: the driver refuses.
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
                driver.cuStreamEndCapture(stream)  # it may be refused too, which is no news
                raise
            graph = _ask(driver.cuStreamEndCapture, stream)
            whole = _ask(driver.cuGraphInstantiate, graph, 0)
            _ask(driver.cuGraphDestroy, graph)

        def replay() -> None:
            _ask(driver.cuGraphLaunch, whole, stream)

        weakref.finalize(replay, driver.cuGraphExecDestroy, whole).atexit = False  # the process's end frees it
        return replay

    def synchronize(self) -> None:
        """Wait for all that was queued here."""
        self.numba.synchronize()


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the driver; returns what it gives besides its error code.

    Raises:
        RuntimeError: the driver refuses.
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
    """The array itself if it is NumPy's, else a copy of a device array (Numba's) or a tensor."""
    if not isinstance(array, np.ndarray):
        array = array.copy_to_host() if hasattr(array, "copy_to_host") else array.cpu().numpy()
    host: Array = array
    return host


class Buffers:
    """Device arrays by name that grow to the largest shape asked for and then stay, so that a bulk like the one before allocates nothing.

    Attributes:
        version: how often memory was made so far.
    """

    def __init__(self, stream: DeviceStream, block: int = 256) -> None:
        """Start empty; ``block`` is the number of threads of a block that copies."""
        self._stream, self._block = stream, block
        self._arrays: dict[str, Any] = {}
        self._pinned: dict[str, Array] = {}
        self.version = 0

    def array(self, name: str, shape: Sequence[int], dtype: DTypeLike, *, keep: bool = False) -> Any:
        """Return an array of at least ``shape``, never empty, of undefined contents. With ``keep`` it is a matrix whose contents stay when it grows.

        One that is kept is zero at first: whole rows are copied when it grows, also entries that no kernel has written.
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
        """A host array of the shape and type of a device array, that copies can be queued to and from."""
        old = self._pinned.get(name)
        if old is None or old.shape != tuple(like.shape) or old.dtype != like.dtype:
            from numba import cuda

            self._pinned[name] = old = cuda.pinned_array(tuple(like.shape), like.dtype)
            self.version += 1
        return old

    def uploaded(self, name: str, rows: Sequence[Array], dtype: DTypeLike, width: int) -> Any:
        """A matrix (len(rows), ``width`` or more) whose rows begin with those given; their copy is queued from pinned memory."""
        matrix = self.array(name, (len(rows), width), dtype)
        host = self.pinned(name, matrix)
        self.fill(name, rows)
        matrix.copy_to_device(host, stream=self._stream.numba)
        return matrix

    def fill(self, name: str, rows: Sequence[Array]) -> None:
        """Write what a copy queued by ``uploaded`` will take, or take again: the beginnings of the rows."""
        for target, row in zip(self._pinned[name], rows, strict=False):
            target[: len(row)] = row

    def __contains__(self, name: str) -> bool:
        return name in self._arrays
