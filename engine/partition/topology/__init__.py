"""Partitioned graphs: each machine has the columns of its own nodes."""
