"""Sampling from graphs whose edges do not fit in memory: edges are read from files, for each hop of the batches of many steps together."""
