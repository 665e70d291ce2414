"""Checks of ``hoptrain doctor --gpu`` without torch: numba-cuda, the device, kernels, host memory and inter-process memory."""

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
from hoptrain.trainers.commands.checks.finding import CheckFailed, CheckSkipped
from hoptrain.trainers.commands.checks.packages import version_of

THREADS = 32
NUMBERS = np.arange(1000, dtype=np.int64).reshape(1, -1) * 3


def needs_device() -> None:
    """Raise ``CheckSkipped`` in the simulator, which lacks many driver features."""
    if is_simulated():
        raise CheckSkipped("skipped: the CUDA simulator cannot check this")


def expect_equal(what: str, found: Array, expected: Array) -> None:
    """Raise ``CheckFailed`` unless two arrays are equal."""
    if not np.array_equal(found, expected):
        different = (
            int((found != expected).sum()) if found.shape == expected.shape else f"shape {found.shape} instead of {expected.shape}, all"
        )
        raise CheckFailed(f"{what}: wrong values ({different} of {expected.size})")


def copy(source: Any, target: Any, stream: Any = 0) -> None:
    """Launch a kernel that copies ``source``, (1, N) int64 on the device, to ``target``."""
    copy_rows[(1, 1), THREADS, stream, 0](source, target)


def versions() -> str:
    """Check that NVIDIA's numba-cuda is loaded, not Numba's own CUDA target."""
    found = f"{version_of('numba-cuda') or 'numba-cuda of unknown version'}, {version_of('numba') or 'numba of unknown version'}"
    if is_simulated():
        raise CheckSkipped(f"CUDA simulator of {found}: NUMBA_ENABLE_CUDASIM is set")
    if cuda.implementation != "NVIDIA":
        raise CheckFailed(f"Numba's own CUDA target is loaded instead of NVIDIA's numba-cuda ({found})")
    return found


def device() -> str:
    """Check that the GPU's driver is new enough for the compiler."""
    needs_device()
    from numba.cuda.cudadrv.driver import driver  # imported here, since the simulator lacks this module
    from numba.cuda.cudadrv.runtime import runtime

    gpu = cuda.gpus[default_gpu()]
    has, needs = driver.get_version(), runtime.get_version()
    capability = ".".join(map(str, gpu.compute_capability))
    found = f"{gpu.name}, compute capability {capability}, driver for CUDA {'.'.join(map(str, has))}, compiler for CUDA {'.'.join(map(str, needs))}"
    if has[0] < needs[0]:
        raise CheckFailed(found)
    return found


def _launch() -> float:
    """Launch a kernel for the first time in this process, check its result, and return the seconds of the launch."""
    source, target = cuda.to_device(NUMBERS), cuda.device_array(NUMBERS.shape, NUMBERS.dtype)
    begin = time.perf_counter()
    copy(source, target)
    cuda.synchronize()
    seconds = time.perf_counter() - begin
    expect_equal("a copy by a kernel", target.copy_to_host(), NUMBERS)
    return seconds


def kernel() -> str:
    """Check that a kernel compiles and gives the right result."""
    return f"compiled and ran within {_launch():.1f} s"


def kernel_again() -> str:
    """Check that numba-cuda reads the kernel's machine code from the cache that the check "kernel" filled."""
    needs_device()
    seconds = _launch()
    statistics = copy_rows.stats
    if not sum(statistics.cache_hits.values()):
        raise CheckFailed(
            f"a kernel that another process had compiled was compiled again, in {seconds:.1f} s: nothing was read from {statistics.cache_path}"
        )
    return f"read machine code of another process and ran it within {seconds:.1f} s"


def host_memory() -> str:
    """Check that a kernel reads mapped host memory, and that the device copies to pinned memory asynchronously."""
    stream = cuda.stream()
    mapped, pinned = (make(NUMBERS.shape, NUMBERS.dtype) for make in (cuda.mapped_array, cuda.pinned_array))
    mapped[...] = NUMBERS
    target = cuda.device_array(NUMBERS.shape, NUMBERS.dtype)
    copy(mapped, target, stream)
    target.copy_to_host(pinned, stream=stream)
    stream.synchronize()
    expect_equal("mapped memory read by a kernel, and copied to pinned memory", np.asarray(pinned), NUMBERS)
    return "a kernel reads mapped memory, and a copy to pinned memory works"


def ipc() -> str:
    """Check that a second process can open device memory of this process, as the ranks of GPUs that share a feature cache do."""
    needs_device()
    rows = NUMBERS.reshape(10, -1)
    array, handle = lend(rows.shape, rows.dtype)
    array.copy_to_device(rows)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as second:
        row = second.submit(_read_row, handle, rows.shape, 7).result()
    expect_equal("a row read by a second process", row, rows[7])
    return "a second process reads device memory of this one"


def _read_row(handle: str, shape: tuple[int, ...], row: int) -> Array:
    numbers: Array = borrow(handle, shape, NUMBERS.dtype)[row].copy_to_host()
    return numbers
