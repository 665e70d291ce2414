"""Tasks about pairs of vertices: links, to be told from pairs that are none."""
