"""Going on from a checkpoint, to the bit."""
