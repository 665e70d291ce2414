"""Where features and graph lie for the GPUs of a machine: one copy in host memory for all ranks, the hottest rows in device memory."""
