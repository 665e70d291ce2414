"""What the registry holds for each data set, and what the sources share: random splits, features in the narrowest dtype that is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.kernels.cpu.shuffle import permutation

Load: TypeAlias = Callable[[str, Path | None, float], Dataset | HeteroDataset]
"""(name, root, scale) -> data set. ``root`` is a folder that exists, or None; ``scale`` is 1.0 unless the source is scalable."""
RANDOM_SPLIT = "random 60/20/20 of the labelled nodes: hoptrain's permutation with seed 0"


class Counts(NamedTuple):
    """Published sizes: V, stored directed edges, F, C."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One entry of the registry.

    Attributes:
        about: one line for the table of data sets.
        origin: where it comes from.
        load: obtains it.
        counts: published sizes, None if they are not known before it is there.
        is_scalable: whether ``scale`` may differ from 1.
        is_present: (name, root) -> whether it can be had without the network.
    """

    about: str
    origin: str
    load: Load
    counts: Counts | None = None
    is_scalable: bool = False
    is_present: Callable[[str, Path | None], bool] = lambda name, root: True


def random_splits(ids: Array) -> dict[str, Array]:
    """Return 60/20/20 of the node ids (N,) as ``train``, ``val`` and ``test``: fixed, the same on every machine and with every library."""
    order = ids[permutation(len(ids), 0, 0)].astype(np.int64)
    bounds = [len(ids) * 60 // 100, len(ids) * 80 // 100]
    return {name: np.sort(part) for name, part in zip(("train", "val", "test"), np.split(order, bounds), strict=True)}


def narrow_features(x: Array) -> Array:
    """Return features (V, F), or their values (N,), as uint8 if that is exact, else float16 as it is, else float32."""
    if _fits_uint8(x):
        return x.astype(np.uint8, copy=False)
    return x if x.dtype == np.float16 else x.astype(np.float32, copy=False)


def _fits_uint8(x: Array) -> bool:
    if x.dtype == np.uint8 or x.dtype == bool:
        return True
    with np.errstate(invalid="ignore"):  # a NaN is no integer; the data set's own check names it
        pieces = (x[begin : begin + 4096] for begin in range(0, len(x), 65536))
        return all(np.array_equal(piece, piece.astype(np.uint8)) for piece in pieces)
