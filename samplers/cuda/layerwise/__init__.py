"""Samplers that draw for all nodes of a layer together, on a CUDA device."""
