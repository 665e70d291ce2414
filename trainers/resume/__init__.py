"""Going on from a checkpoint, bit for bit."""
