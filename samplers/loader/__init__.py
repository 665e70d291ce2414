"""Loaders, which make mini-batches with features from the items of a schedule: in this process, in sampler processes or on a GPU."""
