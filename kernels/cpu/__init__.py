"""Loops and memory for the CPU: Numba functions over NumPy arrays, compiled once per machine."""

from hoptrain.kernels.cpu.compile import cpu_kernel

__all__ = ["cpu_kernel"]
