"""Operations on torch tensors by hoptrain's own CUDA kernels, on torch's current stream."""
