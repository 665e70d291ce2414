"""Edges as seeds on a CUDA device."""
