"""Sampling programs, which define a sampler in a few lines of Python, and random walks as programs."""
