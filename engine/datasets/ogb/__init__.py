"""Data sets of the Open Graph Benchmark (OGB): download, licences and file formats."""
