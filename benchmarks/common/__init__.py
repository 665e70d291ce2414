"""What the benchmarks share: results, rounds, processes, grids, pictures."""
