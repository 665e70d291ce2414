"""CPU kernels for seeds: edges as seeds, negatives, weighted and importance-sampled seeds."""
