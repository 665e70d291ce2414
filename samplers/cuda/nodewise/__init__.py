"""CUDA drivers of node-wise samplers."""
