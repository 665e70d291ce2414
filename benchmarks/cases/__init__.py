"""What is measured: algorithms with their settings."""
