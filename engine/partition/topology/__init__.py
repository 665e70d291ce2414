"""The graph itself in parts: each machine has the columns of its own nodes."""
