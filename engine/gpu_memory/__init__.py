"""Placement of features and graphs for the GPUs of a machine: one copy in host memory for all ranks, hot rows in device memory."""
