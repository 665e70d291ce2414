"""Samplers around other samplers: they make or choose the seeds."""
