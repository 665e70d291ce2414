"""Runs the CUDA C++ kernels without a device: ``nvrtc`` compiles them, ``machines`` runs them, and ``shim.h`` adapts them for g++."""
