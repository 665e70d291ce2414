"""Data sets whose graph has several types of vertices and edges."""
