"""Features of vertices and of edges: what they may be, and tables of them in fewer bytes."""
