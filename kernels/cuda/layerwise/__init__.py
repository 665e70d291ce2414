"""Draws for all vertices of a layer together."""
