"""Sums and means over the edges of a block, which all layers use for aggregation, on the CPU and on GPUs."""

from hoptrain.trainers.models.sums.aggregate import aggregate, narrows_first

__all__ = ["aggregate", "narrows_first"]
