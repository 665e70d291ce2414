"""CUDA drivers of sampling programs."""
