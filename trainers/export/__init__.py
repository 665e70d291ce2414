"""Export of trained models to files that run without Lightning and without hoptrain's models."""
