"""What a model is judged by, over all ranks: scores of links by their ranks, scores of nodes and edges by name."""

LOWER_IS_BETTER = {"mae", "rmse"}
"""Scores of which the best checkpoint has the lowest."""
