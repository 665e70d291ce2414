"""What the sources share: splits that no library decides, features in the narrowest dtype that is exact."""

from __future__ import annotations

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.shuffle import permutation

RANDOM_SPLIT = "random 60/20/20 of the labelled vertices: hoptrain's permutation with seed 0"


def random_splits(ids: Array) -> dict[str, Array]:
    """60/20/20 of the vertex ids (N,) as ``train``, ``val`` and ``test``: fixed, the same on every machine and with every library."""
    order = ids[permutation(len(ids), 0, 0)].astype(np.int64)
    bounds = [len(ids) * 60 // 100, len(ids) * 80 // 100]
    return {name: np.sort(part) for name, part in zip(("train", "val", "test"), np.split(order, bounds), strict=True)}


def narrow_features(x: Array) -> Array:
    """Features (V, F), or their values (N,), as uint8 if that is exact, else float16 as it is, else float32."""
    if _fits_uint8(x):
        return x.astype(np.uint8, copy=False)
    return x if x.dtype == np.float16 else x.astype(np.float32, copy=False)


def _fits_uint8(x: Array) -> bool:
    if x.dtype == np.uint8 or x.dtype == bool:
        return True
    with np.errstate(invalid="ignore"):  # a NaN is no integer; the data set's own check names it
        pieces = (x[begin : begin + 4096] for begin in range(0, len(x), 65536))
        return all(np.array_equal(piece, piece.astype(np.uint8)) for piece in pieces)
