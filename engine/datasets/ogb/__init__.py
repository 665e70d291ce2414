"""The Open Graph Benchmark: its data sets, their download, and its binary layout."""
