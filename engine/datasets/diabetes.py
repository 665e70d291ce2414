"""``diabetes-knn``: a graph of 442 diabetes patients and their nearest neighbours, with a regression target. Available offline."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.datasets.digits import nearest_neighbors
from hoptrain.engine.datasets.source import RANDOM_SPLIT, Counts, Source
from hoptrain.engine.features.splits import random_splits
from hoptrain.engine.graph import Graph

NEIGHBORS = 8
_VERSION = 1
_GRID = 10_000


def load_diabetes_knn(name: str, root: Path | None, scale: float) -> Dataset:
    """Open ``diabetes-knn``. The first call converts scikit-learn's data and stores the result in the cache."""
    return open_cached(Dataset, f"{name}-{_VERSION}", lambda writer: convert_diabetes().write_to(writer))


def convert_diabetes() -> Dataset:
    """Convert scikit-learn's diabetes data (Efron et al. 2004): x (442, 10) and y (442,), float32 with mean 0 and variance 1; undirected edges."""
    from sklearn.datasets import load_diabetes

    x, target = load_diabetes(return_X_y=True)  # scikit-learn scales columns to norm 1
    x, y = x * len(x) ** 0.5, (target - target.mean()) / target.std()
    nearest = nearest_neighbors(np.round(x * _GRID).astype(np.int64), NEIGHBORS)
    dst = np.repeat(np.arange(len(x)), NEIGHBORS)
    return Dataset(
        name="diabetes-knn",
        graph=Graph.from_pairs(nearest.ravel(), dst, len(x)),
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        splits=random_splits(np.arange(len(x))),
        meta={
            "source": "scikit-learn load_diabetes (Efron, Hastie, Johnstone, Tibshirani 2004, Least angle regression)",
            "licence": "BSD-3 (scikit-learn)",
            "graph": f"{NEIGHBORS} nearest neighbours by Euclidean distance of the ten columns, ties by node id, made symmetric",
            "split": RANDOM_SPLIT.replace("the labelled nodes", "the nodes"),
        },
    )


SOURCES = {
    "diabetes-knn": Source(
        about="442 real patients with their 8 nearest neighbours, and a regression target",
        origin="scikit-learn, offline",
        load=load_diabetes_knn,
        counts=Counts(442, 4_986, 10, 1),
    )
}
