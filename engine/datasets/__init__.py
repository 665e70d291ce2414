"""Data sets by name: where each comes from and how it becomes a folder of arrays."""
