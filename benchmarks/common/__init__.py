"""Parts that the benchmarks share: results, rounds, processes, grids, pictures."""
