"""Metrics over all ranks: for labels, links and recommendations; and custom losses and metrics."""
