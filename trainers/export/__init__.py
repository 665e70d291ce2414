"""Writes a trained model as a file that runs without Lightning and without hoptrain's models."""
