"""CPU kernels of node-wise sampling: uniform, weighted and temporal neighbours, LABOR and PinSAGE."""
