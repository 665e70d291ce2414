"""Loops and memory for CUDA: Numba kernels, and host functions that launch them in order. Importing it needs numba-cuda, but no device."""

from hoptrain.kernels.cuda import draw, gather, group, program, relabel, rows, sample_parallel, scan, transit_parallel
from hoptrain.kernels.cuda.compile import KERNELS, cuda_kernel, device_function

__all__ = [
    "KERNELS", "cuda_kernel", "device_function", "draw", "gather", "group", "program", "relabel", "rows", "sample_parallel", "scan", "transit_parallel",
]  # fmt: skip
