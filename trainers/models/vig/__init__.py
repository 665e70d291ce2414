"""ViG: pictures as graphs of patches."""
