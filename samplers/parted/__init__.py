"""Samplers on a graph in parts: the owner of a vertex draws for it, whoever asks."""
