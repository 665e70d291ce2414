"""Tasks on independent items, which need no sampling: images, small graphs, and nodes with precomputed neighbourhood features (SIGN)."""
