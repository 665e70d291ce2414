"""Sets of vertices, and the subgraphs that they induce."""
