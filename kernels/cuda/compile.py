"""The decorators of everything that runs on a CUDA device, and the list of all kernels."""

import importlib.metadata
from functools import lru_cache, partial
from importlib.util import find_spec

import numpy as np
from numba import cuda
from numba.core import config

from hoptrain.kernels.machine_code import code_folder, kept_in

KERNELS = {}
"""Name of a kernel -> (dispatcher, signatures with which it is launched). A kernel is compiled for the types it meets; the signatures are
for whoever wants the machine code without a device: how many registers it takes, whether it spills."""


MAX_REGISTERS = 64
"""Of a thread: 1024 threads then fit an SM, which has 65536. No kernel spills under it."""

if find_spec("numba_cuda") is None:
    raise ImportError("numba-cuda is not installed, and kernels for CUDA need it: install it with 'pip install hoptrain[cuda]'")

COMPILER = f"numba-cuda{importlib.metadata.version('numba-cuda')}-numpy{np.__version__}"
"""Part of a cache folder's name; within a folder Numba keeps kernels apart by compute capability and version of the runtime."""

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # numba-cuda would warn at every launch of a small bulk, and nobody could do anything about it


def cuda_kernel(*signatures):
    """A decorator: compile for CUDA and enter into ``KERNELS``.

    Args:
        signatures: argument types as in ``"void(int64[::1], int32)"``, one string for each combination worth looking at.
    """

    def register(function):
        with kept_in(code_folder(function.__code__.co_filename, COMPILER)):
            kernel = jit(function, cache=True)
        KERNELS[function.__name__] = (kernel, signatures)
        return kernel

    return register


def jit(function, **options):
    """Compile a kernel for CUDA; the simulator interprets it."""
    if config.ENABLE_CUDASIM:
        return cuda.jit(function)
    kernel = cuda.jit(max_registers=MAX_REGISTERS, **options)(function)
    # Numba keeps 128 launches' grids of all kernels together: a bulk of heterogeneous edges has more.
    kernel.configure = lru_cache(maxsize=128)(partial(type(kernel).configure.__wrapped__, kernel))
    return kernel


device_function = cuda.jit(device=True)
"""The decorator of a function that kernels call and that knows of threads, blocks or arrays; a decision on scalars is a ``shared`` one."""
