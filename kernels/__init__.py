"""Compiled kernels, the lowest layer of hoptrain. They take and return arrays; nothing in ``shared/`` and ``cpu/`` imports torch.

``shared/``  scalar functions that are compiled for both CPU and CUDA
``cpu/``     loops over NumPy arrays, compiled by Numba
``cuda/``    loops over GPU arrays, compiled by Numba or nvcc
"""
