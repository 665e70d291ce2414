"""``Source``, the class of entries of the registry of data sets, and functions that several sources use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.hetero_dataset import HeteroDataset

Load: TypeAlias = Callable[[str, Path | None, float], Dataset | HeteroDataset]
"""Type of a function (name, root, scale) -> data set. ``root`` is an existing folder or None; ``scale`` is 1.0 unless the source is scalable."""
RANDOM_SPLIT = "random 60/20/20 of the labelled nodes: hoptrain's permutation with seed 0"


class Counts(NamedTuple):
    """Published sizes of a data set: numbers of nodes (V), stored directed edges (E), features (F) and classes (C)."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A registry entry: how a data set is obtained, and its published sizes.

    Attributes:
        about: description in one line.
        origin: origin of the data.
        load: function that loads the data set.
        counts: published sizes; None if they are unknown before the download.
        is_scalable: True if ``scale`` may differ from 1.
        is_present: function (name, root) that returns whether the data set is available offline.
    """

    about: str
    origin: str
    load: Load
    counts: Counts | None = None
    is_scalable: bool = False
    is_present: Callable[[str, Path | None], bool] = lambda name, root: True


def narrow_features(x: Array) -> Array:
    """Convert features (V, F), or some of their values (N,), to uint8 if that is exact; otherwise float16 is kept, and other dtypes become float32."""
    if _fits_uint8(x):
        return x.astype(np.uint8, copy=False)
    return x if x.dtype == np.float16 else x.astype(np.float32, copy=False)


def _fits_uint8(x: Array) -> bool:
    if x.dtype == np.uint8 or x.dtype == bool:
        return True
    with np.errstate(invalid="ignore"):  # hides the warning that NaN cannot be converted; the data set's own check reports NaN
        pieces = (x[begin : begin + 4096] for begin in range(0, len(x), 65536))
        return all(np.array_equal(piece, piece.astype(np.uint8)) for piece in pieces)
