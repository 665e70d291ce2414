"""Tasks whose items stand alone: pictures, many small graphs, vertices whose neighbours were averaged beforehand."""
