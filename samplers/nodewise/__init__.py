"""Samplers that draw for each node by itself."""
