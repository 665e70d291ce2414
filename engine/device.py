"""Whether there is a CUDA device, and which one is this process's. Nothing here imports numba-cuda or torch before it is called for."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import warnings
import weakref
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, explain_hint, one_line

PLACEMENTS = ("auto", "device", "pinned")
"""Where an array lies that a device reads: "device" memory, "pinned" host memory, or "auto", by what is free."""


def split_device(device: str) -> tuple[str, int | None]:
    """A device in torch's words as its kind and the GPU's number, which may be left open: "cuda:3" is ("cuda", 3)."""
    kind, _, number = device.partition(":")
    return (kind, int(number)) if kind == "cuda" and number.isdecimal() else (device, None)


def cuda_status(gpu: int | None = None) -> str | None:
    """None where CUDA can be used (or is simulated), else one line that says why not; of a GPU by its number, or of this process's own."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: install it with 'pip install hoptrain[cuda]'"
    try:
        from hoptrain.kernels.numba_cuda import cuda
    except Exception as error:  # of a release of NumPy or CUDA that it does not know
        return f"numba-cuda cannot be imported ({one_line(error)}): install its versions of 'pip install hoptrain[cuda]'"

    if cuda.implementation != "NVIDIA":
        return (
            "Numba's own CUDA target is in use in place of numba-cuda, whose .pth file was not read (it is in site-packages only, not on PYTHONPATH): "
            "import _numba_cuda_redirector before numba"
        )
    if is_simulated():
        return None
    try:
        gpu = default_gpu() if gpu is None else gpu
        if gpu >= len(cuda.gpus):
            return f"there is no GPU {gpu}: they have the numbers 0 to {len(cuda.gpus) - 1}"
        device = cuda.gpus[gpu]  # to ask it makes no context there
    except Exception as error:  # the driver's own errors have no common class
        return f"no CUDA device can be used: {one_line(error).rstrip(' :.')}"
    return None if device.compute_capability >= (7, 0) else f"{device.name} is too old: kernels need compute capability 7.0"


def default_gpu() -> int:
    """Number of the GPU for this process: torch's current one where torch works with GPUs already, else that of its local rank."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    from numba import cuda

    return int(os.environ.get("LOCAL_RANK", "0")) % max(1, len(cuda.gpus))


def check_cuda(gpu: int | None = None) -> None:
    """Refuse to go on without CUDA, on this GPU or on this process's own.

    Raises:
        InputError: it cannot be used.
    """
    reason = cuda_status(gpu)
    if reason is not None:
        raise InputError(f'device is "cuda", but {reason}; or use device="cpu"' + explain_hint("cuda"))


def is_simulated() -> bool:
    """Whether kernels run in Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba.core import config

    return bool(config.ENABLE_CUDASIM)


def torch_on_device() -> Any:
    """The torch module if it is in the process and can use a CUDA device that is not simulated, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and not is_simulated() and torch.cuda.is_available() else None


def pin_pages(buffer: Array) -> None:
    """Lock the pages of a buffer while it lives: a GPU copies from them by itself, without the processor and without waiting.

    Where CUDA refuses, a warning says so once, and copies take the way of ordinary memory.
    """
    torch_on_device().cuda.mem_get_info()  # makes the training's context this thread's
    driver, address = _driver(), ctypes.c_void_p(buffer.ctypes.data)
    # Of the runtime's function, which does the same, torch would raise the refusal again at the next kernel.
    code = driver.cuMemHostRegister_v2(address, ctypes.c_size_t(buffer.nbytes), _PORTABLE)
    if code:
        warnings.warn(f"{_UNLOCKED} (error {code} of the driver)", RuntimeWarning, stacklevel=2)
    else:
        weakref.finalize(buffer, driver.cuMemHostUnregister, address).atexit = False


_PORTABLE = 1
"""The driver's flag for pages that are locked for all contexts of the process."""
_UNLOCKED = (
    "the queue's memory cannot be page-locked, so copies to the GPU wait for the processor: raise the limit of locked memory (ulimit -l)"
)


def _driver() -> Any:
    """CUDA's driver."""
    return ctypes.CDLL("libcuda.so.1")
