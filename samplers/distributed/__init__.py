"""Sampling on a partitioned graph: the machine that owns a node draws its edges for all machines."""
