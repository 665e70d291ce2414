"""CPU kernels: Numba functions over NumPy arrays, compiled once for each machine."""

from hoptrain.kernels.cpu.compile import cpu_kernel

__all__ = ["cpu_kernel"]
