"""Tasks about pairs of vertices: links, to be told from pairs that are none, with relations too, and labels of edges."""
