"""Samplers that draw for each node by itself, on a CUDA device."""
