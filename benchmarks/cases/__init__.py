"""Cases of the benchmarks: sampling algorithms with their settings, and the accuracy and GPU measurements of other modules."""
