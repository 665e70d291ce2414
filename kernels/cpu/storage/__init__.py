"""Rows that lie on a disk: which of them to keep in memory, and how to read the others."""
