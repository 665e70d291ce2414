"""CUDA kernels of custom sampling programs, and the cache of their machine code."""
