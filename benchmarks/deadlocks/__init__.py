"""What goes wrong around loaders and ranks."""
