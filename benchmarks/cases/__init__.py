"""The cases that are measured: algorithms with their settings."""
