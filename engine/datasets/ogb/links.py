"""OGB's link sets: the files of their splits, ``train.pt``, ``valid.pt`` and ``test.pt``, which torch has written, dictionaries of arrays.

They are pickles, of which nothing is executed: see ``hoptrain.engine.datasets.ogb.pickled``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.ogb.pickled import read_torch_file
from hoptrain.engine.errors import InputError, one_line

_FILES = {"train": "train", "val": "valid", "test": "test"}


class Links(NamedTuple):
    """Links of all splits, and what each of validation and test is told from."""

    src: Array
    """(E,) int64: the links of the training and their reverses, then those of validation, then those of the test."""
    dst: Array
    """(E,) int64."""
    splits: dict[str, Array]
    """Numbers of edges by split."""
    negatives: dict[str, Array]
    """(2, M) pairs for all links, or (2, N, K), K for each."""
    times: Array | None
    """(E,) years, where they have some."""


def read_links(folder: Path) -> Links:
    """Read the three files.

    Raises:
        InputError: one is missing or damaged, holds what may not be read, or is of another layout.
    """
    parts = {split: _load(folder / f"{file}.pt") for split, file in _FILES.items()}
    try:
        ends = {split: _ends(part) for split, part in parts.items()}
        negatives = {split: _negatives(parts[split]) for split in ("val", "test")}
        years = [np.asarray(part["year"], np.int64).reshape(-1) for part in parts.values()] if "year" in parts["train"] else []
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder} holds no split of links ({one_line(error)}): remove the data set's folder, and download it again"
        ) from None
    src, dst = (np.concatenate([ends["train"][i], ends["train"][1 - i], ends["val"][i], ends["test"][i]]) for i in (0, 1))
    bounds = np.cumsum([0, 2 * len(ends["train"][0]), len(ends["val"][0]), len(ends["test"][0])])
    splits = {split: np.arange(begin, end) for split, begin, end in zip(_FILES, bounds, bounds[1:], strict=False)}
    return Links(src, dst, splits, negatives, np.concatenate([years[0], *years]) if years else None)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        part = read_torch_file(path)
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise InputError(
            f"{path} is missing, damaged, or holds more than arrays ({one_line(error)[:200]}): remove the data set's folder, and it is "
            "downloaded again"
        ) from None
    if not isinstance(part, dict):
        raise InputError(f"{path} holds a {type(part).__name__}: a split of links is a dictionary of arrays; download it again")
    return part


def _ends(part: Mapping[str, Any]) -> Array:
    """(2, N) int64, sources above destinations."""
    pairs = np.stack([part["source_node"], part["target_node"]]) if "source_node" in part else np.asarray(part["edge"]).T
    return _pairs(pairs, 2)


def _negatives(part: Mapping[str, Any]) -> Array:
    if "target_node_neg" not in part:
        return _pairs(np.asarray(part["edge_neg"]).T, 2)
    others = np.asarray(part["target_node_neg"])
    return _pairs(np.stack(np.broadcast_arrays(np.asarray(part["source_node"])[:, None], others)), 3)


def _pairs(pairs: Array, ndim: int) -> Array:
    if pairs.ndim != ndim or len(pairs) != 2 or pairs.dtype.kind != "i":
        raise ValueError(f"pairs are {pairs.dtype} of shape {pairs.shape}")
    wide: Array = pairs.astype(np.int64, copy=False)
    return wide
