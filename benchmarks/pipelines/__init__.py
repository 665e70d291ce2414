"""What the processes of a pipeline's benchmark do."""
