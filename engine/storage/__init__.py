"""Feature tables that are larger than memory: a cache of their rows, planned from the accesses of future steps, and the process that fills it from the disk."""
