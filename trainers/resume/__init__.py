"""Checkpoints, and bit-identical resuming from them."""
