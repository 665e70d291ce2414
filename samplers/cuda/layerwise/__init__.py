"""Samplers that draw for all vertices of a layer together, on a CUDA device."""
