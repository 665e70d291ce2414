"""What parts a graph, in passes over its columns."""
