"""CUDA availability, the choice of a GPU for this process, and pinned memory. Imports numba-cuda and torch only when a function needs them."""

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
"""Memory types for arrays that a GPU reads: "device" memory, "pinned" host memory, or "auto", which chooses by free memory."""


def split_device(device: str) -> tuple[str, int | None]:
    """Split a torch device name into kind and GPU index: "cuda:3" gives ("cuda", 3), "cuda" gives ("cuda", None)."""
    kind, _, number = device.partition(":")
    return (kind, int(number)) if kind == "cuda" and number.isdecimal() else (device, None)


def cuda_status(gpu: int | None = None) -> str | None:
    """Return None if CUDA can be used or is simulated, else the reason in one line. ``gpu`` is by default this process's GPU."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: install it with 'pip install hoptrain[cuda]'"
    try:
        from hoptrain.kernels.numba_cuda import cuda
    except Exception as error:  # e.g. an incompatible release of NumPy or CUDA
        return f"numba-cuda cannot be imported ({one_line(error)}): install matching versions with 'pip install hoptrain[cuda]'"

    if cuda.implementation != "NVIDIA":
        return (
            "Numba's built-in CUDA target is used instead of numba-cuda, whose .pth file is read from site-packages only, not from PYTHONPATH: "
            "import _numba_cuda_redirector before numba"
        )
    if is_simulated():
        return None
    try:
        gpu = default_gpu() if gpu is None else gpu
        if gpu >= len(cuda.gpus):
            return f"there is no GPU {gpu}: GPUs are numbered 0 to {len(cuda.gpus) - 1}"
        device = cuda.gpus[gpu]  # indexing the list creates no CUDA context
    except Exception as error:  # the driver's exceptions have no common base class
        return f"no CUDA device can be used: {one_line(error).rstrip(' :.')}"
    return None if device.compute_capability >= (7, 0) else f"{device.name} is too old: kernels need compute capability 7.0"


def default_gpu() -> int:
    """Return the index of this process's GPU: torch's current device if torch has initialised CUDA, else the local rank."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    from numba import cuda

    return int(os.environ.get("LOCAL_RANK", "0")) % max(1, len(cuda.gpus))


def check_cuda(gpu: int | None = None) -> None:
    """Raise InputError if CUDA cannot be used on a GPU, by default this process's.

    Raises:
        InputError: CUDA cannot be used. The message contains the reason that ``cuda_status`` returns.
    """
    reason = cuda_status(gpu)
    if reason is not None:
        raise InputError(f'device is "cuda", but {reason}; or use device="cpu"' + explain_hint("cuda"))


def is_simulated() -> bool:
    """Return whether kernels run in Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba.core import config

    return bool(config.ENABLE_CUDASIM)


def torch_on_device() -> Any:
    """Return the torch module if it is imported and can use a real CUDA device, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and not is_simulated() and torch.cuda.is_available() else None


def pin_pages(buffer: Array) -> None:
    """Pin a buffer's memory while it lives, so that a GPU copies from it asynchronously.

    If CUDA refuses, a warning is issued once, and copies use ordinary (pageable) memory.
    """
    torch_on_device().cuda.mem_get_info()  # makes the primary context current in this thread
    driver, address = _driver(), ctypes.c_void_p(buffer.ctypes.data)
    # not cudaHostRegister: torch would raise its error again at the next kernel
    code = driver.cuMemHostRegister_v2(address, ctypes.c_size_t(buffer.nbytes), _PORTABLE)
    if code:
        warnings.warn(f"{_UNLOCKED} (error {code} of the driver)", RuntimeWarning, stacklevel=2)
    else:
        weakref.finalize(buffer, driver.cuMemHostUnregister, address).atexit = False


_PORTABLE = 1
"""Flag of the CUDA driver that pins memory for all contexts of the process."""
_UNLOCKED = "the queue's memory cannot be pinned, so copies to the GPU are synchronous: raise the limit of locked memory (ulimit -l)"


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
