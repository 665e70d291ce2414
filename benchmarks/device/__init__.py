"""Programs to run first on a machine with a GPU."""
