"""Rows of a table that is larger than memory: a cache that knows which of them are read next, and one process that fills it from the disk."""
