"""CUDA drivers of layer-wise samplers."""
