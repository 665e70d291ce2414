"""Samplers that draw for each vertex by itself."""
