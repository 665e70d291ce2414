"""Sets of nodes, and the subgraphs that they induce."""
