"""Reusable buffers, threads and tables of samplers: the workspace, the nodes of a growing batch, hops on the CPU, alias tables."""
