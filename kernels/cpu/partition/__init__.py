"""CPU kernels for graph partitioning, in passes over the columns of the graph."""
