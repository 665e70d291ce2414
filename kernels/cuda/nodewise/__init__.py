"""Draws for each node by itself: by weight, by time, LABOR, PinSAGE's walks. Plain neighbours have their files one floor up."""
