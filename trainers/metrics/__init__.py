"""Metrics over all ranks: of labels by name, of links by rank, and of recommendations."""

LOWER_IS_BETTER = {"mae", "rmse"}
"""Metrics for which the best checkpoint has the lowest value."""
