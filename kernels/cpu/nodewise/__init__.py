"""Draws for each node by itself: neighbours, by weight, by time, LABOR, PinSAGE's walks."""
