"""CUDA kernels of node-wise sampling: weighted, temporal, LABOR and PinSAGE. Uniform neighbour sampling is in the parent package."""
