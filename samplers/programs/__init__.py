"""Samplers in a few lines of Python, and random walks as such."""
