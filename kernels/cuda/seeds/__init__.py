"""Edges as seeds."""
