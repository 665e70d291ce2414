"""Samplers whose mini-batch is a subgraph, on a CUDA device."""
