"""Samplers on a graph in parts: the owner of a node draws for it, whoever asks."""
