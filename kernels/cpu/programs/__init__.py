"""CPU kernels of custom sampling programs and of random walks."""
