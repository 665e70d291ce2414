"""``digits-knn``: a graph of 1,797 handwritten digits and their nearest neighbours. Available offline."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.datasets.source import RANDOM_SPLIT, Counts, Source
from hoptrain.engine.features.splits import random_splits
from hoptrain.engine.graph import Graph

NEIGHBORS = 8
_VERSION = 1


def load_digits_knn(name: str, root: Path | None, scale: float) -> Dataset:
    """Open ``digits-knn``. The first call converts scikit-learn's digits and stores the result in the cache."""
    return open_cached(Dataset, f"{name}-{_VERSION}", lambda writer: convert_digits().write_to(writer))


def convert_digits() -> Dataset:
    """Convert scikit-learn's copy of the UCI digits: x (1797, 64) float32 in [0, 1], ten classes, undirected edges."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    nearest = nearest_neighbors(pixels.astype(np.int64), NEIGHBORS)
    dst = np.repeat(np.arange(len(pixels)), NEIGHBORS)
    return Dataset(
        name="digits-knn",
        graph=Graph.from_pairs(nearest.ravel(), dst, len(pixels)),
        x=(pixels / 16).astype(np.float32),
        y=y.astype(np.int64),
        splits=random_splits(np.arange(len(pixels))),
        num_classes=10,
        meta={
            "source": "scikit-learn load_digits (UCI optical recognition of handwritten digits, test part)",
            "licence": "CC BY 4.0 (UCI), BSD-3 (scikit-learn)",
            "graph": f"{NEIGHBORS} nearest neighbours by Euclidean distance of the pixels, ties by node id, made symmetric",
            "split": RANDOM_SPLIT,
        },
    )


def nearest_neighbors(points: Array, k: int) -> Array:
    """Return the ids (N, k) int64 of the k other points nearest to each point (N, D); ties go to the smaller id. Exact for integer coordinates."""
    norms = (points * points).sum(axis=1)
    distances = norms[:, None] + norms[None, :] - 2 * (points @ points.T)
    np.fill_diagonal(distances, np.iinfo(np.int64).max)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


SOURCES = {
    "digits-knn": Source(
        about="1,797 real digits with their 8 nearest neighbours",
        origin="scikit-learn, offline",
        load=load_digits_knn,
        counts=Counts(1_797, 19_858, 64, 10),
    )
}
