"""Counts of the bytes of device memory that a bulk (mini-batches sampled together) moves, by kernel launch, and predictions of its time."""
