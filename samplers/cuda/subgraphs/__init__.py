"""CUDA drivers of subgraph samplers."""
