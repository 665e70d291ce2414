"""Faults of loaders and ranks for ``hoptrain bench deadlock``."""
