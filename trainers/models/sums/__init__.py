"""Sums over the edges of a block: the one place where layers aggregate, on the CPU and on a GPU."""

from hoptrain.trainers.models.sums.aggregate import aggregate

__all__ = ["aggregate"]
