"""What samplers work with on the CPU: memory that is used again, threads, the nodes of a batch in the making, alias tables."""
