"""Code that the benchmarks share: results, timing in rounds, processes, grids, plots."""
