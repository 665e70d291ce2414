"""Feature tables of nodes and edges: checks, quantisation, and reading of rows."""
