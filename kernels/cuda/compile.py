"""The decorators of CUDA kernels and device functions, and the registry of all kernels."""

import importlib.metadata
from functools import lru_cache, partial
from importlib.util import find_spec

import numpy as np
from numba import cuda
from numba.core import config

from hoptrain.kernels.machine_code import code_folder, kept_in

KERNELS = {}
"""Name of a kernel -> (dispatcher, signatures with which it is launched).

Kernels are compiled for the types of their arguments. The signatures let tests check the machine code without a device, for
example its registers and spills.
"""


MAX_REGISTERS = 64
"""Maximum number of registers of a thread. An SM has 65536, so 1024 threads fit; no kernel spills with this limit."""

if find_spec("numba_cuda") is None:
    raise ImportError("numba-cuda is not installed: CUDA kernels need it; install it with 'pip install hoptrain[cuda]'")

COMPILER = f"numba-cuda{importlib.metadata.version('numba-cuda')}-numpy{np.__version__}"
"""Part of the names of cache folders that identifies the compiler. Within a folder, Numba separates compute capabilities and CUDA versions."""

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # numba-cuda would warn at every launch of a small bulk, for which there is no remedy


def cuda_kernel(*signatures):
    """Return a decorator that compiles a kernel for CUDA and registers it in ``KERNELS``.

    Args:
        signatures: Argument types as in ``"void(int64[::1], int32)"``, a string for each combination whose machine code is checked.
    """

    def register(function):
        with kept_in(code_folder(function.__code__.co_filename, COMPILER)):
            kernel = jit(function, cache=True)
        KERNELS[function.__name__] = (kernel, signatures)
        return kernel

    return register


def jit(function, **options):
    """Compile a kernel for CUDA, or for the simulator if it is active."""
    if config.ENABLE_CUDASIM:
        return cuda.jit(function)
    kernel = cuda.jit(max_registers=MAX_REGISTERS, **options)(function)
    # Numba caches the launch configurations of all kernels in one LRU cache of 128 entries; a bulk of a heterogeneous graph has more.
    kernel.configure = lru_cache(maxsize=128)(partial(type(kernel).configure.__wrapped__, kernel))
    return kernel


device_function = cuda.jit(device=True)
"""Decorator of functions that kernels call and that use threads, blocks or arrays. Functions of scalars are in ``shared`` instead."""
