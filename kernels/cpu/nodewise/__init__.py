"""Draws for each vertex by itself: neighbours, by weight, by time, LABOR, PinSAGE's walks."""
