"""Draws for all nodes of a layer together."""
