"""What goes on around a run: what it shows, its time line, its ranks, its end."""
