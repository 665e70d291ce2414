"""Data sets to save for tests of features and edges that do not fit in memory."""

import numpy as np

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph

CITES, WRITES, BY, OF = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author"), ("field", "of", "paper")


def plain_data():
    """Return a data set with 1 MB of features, 16 bytes a node, and 240 kB of edges."""
    draw = np.random.default_rng(0)
    number, skewed = 8000, (8000 * draw.random(60_000) ** 3).astype(np.int64)
    edges = np.stack([skewed, draw.integers(0, number, 60_000)])
    x, y = draw.random((number, 32), dtype=np.float32), draw.integers(0, 3, number)
    return Dataset(x=x, y=y, edge_index=edges, splits={"train": np.arange(0, number, 5)})


def hetero_data():
    """Return a data set with 0.6 MB of features and four relations of the same size, two with weights and one with features by edge id."""
    draw, num = np.random.default_rng(0), {"paper": 5000, "author": 900, "field": 12}
    sizes = {CITES: 40_000, WRITES: 9000, BY: 9000, OF: 9000}
    edges, weights = {}, {}
    for relation, size in sizes.items():
        sources = (num[relation[0]] * draw.random(size) ** 3).astype(np.int64)
        edges[relation] = sources, draw.integers(0, num[relation[2]], size)
    for relation in (CITES, BY):
        weights[relation] = np.maximum(draw.random(sizes[relation], dtype=np.float32) ** 8 - 0.1, 0)
    return HeteroDataset(
        graph=HeteroGraph.from_edges(num, edges, weights=weights),
        seed_type="paper",
        x={"paper": draw.random((5000, 24), dtype=np.float32), "field": draw.random((12, 3), dtype=np.float32)},
        edge_attr={WRITES: draw.random((9000, 3), dtype=np.float32)},
        y=draw.integers(0, 3, 5000),
        splits={"train": np.arange(0, 5000, 4)},
    )
