"""CUDA drivers of the samplers, which sample a bulk of mini-batches at once, bit-identical to those of the CPU."""
