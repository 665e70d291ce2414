"""Metrics over all ranks: of labels by name, of links by rank, and of recommendations; and losses and metrics of the user's own."""
