"""Training on the whole graph at once, shared out over the ranks: the baseline that sampling is measured against."""
