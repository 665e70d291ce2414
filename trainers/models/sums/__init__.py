"""Sums and means over the edges of a block, which all layers use for aggregation, on the CPU and on GPUs."""

from hoptrain.trainers.models.sums.aggregate import (
    aggregate,
    aggregate_joined,
    aggregate_with_own,
    joined_weight,
    joins,
    narrows_first,
    sums_in_table,
)
from hoptrain.trainers.models.sums.lookup import lookup, lookup_of_edges
from hoptrain.trainers.models.sums.softmax import softmax_over_edges

__all__ = [
    "aggregate",
    "aggregate_joined",
    "aggregate_with_own",
    "joined_weight",
    "joins",
    "lookup",
    "lookup_of_edges",
    "narrows_first",
    "softmax_over_edges",
    "sums_in_table",
]
