"""Features of nodes and of edges: what they may be, and tables of them in fewer bytes."""
