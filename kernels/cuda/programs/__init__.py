"""The loops of sampling programs."""
