"""CPU kernels of layer-wise sampling, which draws for all nodes of a layer together."""
