"""Benchmarks of hoptrain: one module for each question, run with ``hoptrain bench NAME``."""
