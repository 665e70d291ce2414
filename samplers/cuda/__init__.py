"""The samplers on CUDA devices: a bulk of mini-batches at once, bit for bit those that the CPU makes."""
