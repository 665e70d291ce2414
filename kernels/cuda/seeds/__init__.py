"""CUDA kernels for edges as seeds."""
