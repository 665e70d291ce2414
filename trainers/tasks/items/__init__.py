"""Tasks whose items stand alone: pictures, many small graphs, nodes whose neighbours were averaged beforehand."""
