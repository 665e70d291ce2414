"""CUDA kernels of subgraph sampling: node sets, and the subgraphs that they induce."""
