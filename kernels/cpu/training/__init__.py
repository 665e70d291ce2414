"""CPU kernels for training: dropout, and the transposed edges of a block."""
