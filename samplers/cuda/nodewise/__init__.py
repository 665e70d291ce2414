"""Samplers that draw for each vertex by itself, on a CUDA device."""
