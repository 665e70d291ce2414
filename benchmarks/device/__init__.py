"""What is run first on a machine with a GPU."""
