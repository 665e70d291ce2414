"""What ``hoptrain doctor --gpu`` looks at without torch: numba-cuda, the device, kernels, memory of the host and of other processes."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numba import cuda

from hoptrain.engine.arrays import Array
from hoptrain.engine.device import default_gpu, is_simulated
from hoptrain.engine.gpu_memory.peers import borrow, lend
from hoptrain.kernels.cuda.rows import copy_rows
from hoptrain.trainers.commands.checks.finding import NotHere, Wrong
from hoptrain.trainers.commands.checks.packages import version_of

THREADS = 32
NUMBERS = np.arange(1000, dtype=np.int64).reshape(1, -1) * 3


def needs_device() -> None:
    """Raise ``NotHere`` in the simulator, which lacks much of what drivers offer."""
    if is_simulated():
        raise NotHere("not in the simulator")


def expect_equal(what: str, found: Array, expected: Array) -> None:
    """Raise ``Wrong`` unless two arrays are the same."""
    if not np.array_equal(found, expected):
        different = int((found != expected).sum()) if found.shape == expected.shape else f"all, of shape {found.shape} for {expected.shape}"
        raise Wrong(f"{what}: other numbers than it should give ({different} of {expected.size})")


def copy(source: Any, target: Any, stream: Any = 0) -> None:
    """Queue a kernel that copies ``source``, (1, N) int64 on the device, to ``target``."""
    copy_rows[(1, 1), THREADS, stream, 0](source, target)


def versions() -> str:
    """Which numba.cuda is loaded."""
    found = f"{version_of('numba-cuda') or 'numba-cuda of unknown version'}, {version_of('numba') or 'numba of unknown version'}"
    if is_simulated():
        raise NotHere(f"the simulator of {found}: NUMBA_ENABLE_CUDASIM is set")
    if cuda.implementation != "NVIDIA":
        raise Wrong(f"Numba's own CUDA target in place of NVIDIA's ({found})")
    return f"NVIDIA's: {found}"


def device() -> str:
    """The GPU, and whether its driver is new enough for the compiler."""
    needs_device()
    from numba.cuda.cudadrv.driver import driver  # not in the simulator
    from numba.cuda.cudadrv.runtime import runtime

    gpu = cuda.gpus[default_gpu()]
    has, needs = driver.get_version(), runtime.get_version()
    capability = ".".join(map(str, gpu.compute_capability))
    found = f"{gpu.name}, compute capability {capability}, driver for CUDA {'.'.join(map(str, has))}, compiler of CUDA {'.'.join(map(str, needs))}"
    if has[0] < needs[0]:
        raise Wrong(found)
    return found


def _launch() -> float:
    """Launch a kernel for the first time in this process and look at what it did; returns the seconds that took."""
    source, target = cuda.to_device(NUMBERS), cuda.device_array(NUMBERS.shape, NUMBERS.dtype)
    begin = time.perf_counter()
    copy(source, target)
    cuda.synchronize()
    seconds = time.perf_counter() - begin
    expect_equal("a copy by a kernel", target.copy_to_host(), NUMBERS)
    return seconds


def kernel() -> str:
    """A kernel is compiled and does what it should."""
    return f"compiled and run within {_launch():.1f} s"


def kernel_again() -> str:
    """Its machine code, that the check before has left behind, is read."""
    needs_device()
    seconds = _launch()
    statistics = copy_rows.stats
    if not sum(statistics.cache_hits.values()):
        raise Wrong(
            f"a kernel that another process has compiled was compiled anew, in {seconds:.1f} s: nothing was read from {statistics.cache_path}"
        )
    return f"machine code of another process read and run within {seconds:.1f} s"


def host_memory() -> str:
    """A kernel reads host memory that is mapped into the device's, and copies go to pinned memory while the host goes on."""
    stream = cuda.stream()
    mapped, pinned = (make(NUMBERS.shape, NUMBERS.dtype) for make in (cuda.mapped_array, cuda.pinned_array))
    mapped[...] = NUMBERS
    target = cuda.device_array(NUMBERS.shape, NUMBERS.dtype)
    copy(mapped, target, stream)
    target.copy_to_host(pinned, stream=stream)
    stream.synchronize()
    expect_equal("mapped memory read by a kernel, and copied to pinned memory", np.asarray(pinned), NUMBERS)
    return "a kernel reads mapped memory, a copy goes to pinned memory"


def ipc() -> str:
    """A second process opens this one's device memory as GPUs do that share their hot rows out, and reads a row."""
    needs_device()
    rows = NUMBERS.reshape(10, -1)
    array, handle = lend(rows.shape, rows.dtype)
    array.copy_to_device(rows)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as second:
        row = second.submit(_read_row, handle, rows.shape, 7).result()
    expect_equal("a row read by a second process", row, rows[7])
    return "a second process reads a row of this one's device memory"


def _read_row(handle: str, shape: tuple[int, ...], row: int) -> Array:
    numbers: Array = borrow(handle, shape, NUMBERS.dtype)[row].copy_to_host()
    return numbers
