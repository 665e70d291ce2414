"""Sampling programs on a CUDA device."""
