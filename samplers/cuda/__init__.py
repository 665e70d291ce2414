"""The samplers on CUDA devices: a bulk of mini-batches at once, to the bit those that the CPU makes."""
