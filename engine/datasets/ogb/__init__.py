"""Open Graph Benchmark (OGB): its data sets, their download, and its file formats."""
