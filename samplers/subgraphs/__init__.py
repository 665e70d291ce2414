"""Samplers whose mini-batch is a subgraph."""
