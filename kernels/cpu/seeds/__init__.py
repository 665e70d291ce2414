"""Draws of the seeds themselves: edges and negatives, seeds by importance."""
