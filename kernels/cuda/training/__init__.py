"""CUDA kernels for training: sums over the edges of a block."""
