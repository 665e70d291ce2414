"""Reader of the splits of OGB's link data sets: ``train.pt``, ``valid.pt`` and ``test.pt``, dictionaries of arrays written by torch.

The files are pickles, which are read without executing code (``hoptrain.engine.datasets.ogb.pickled``).
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


class OgbLinkSplit(NamedTuple):
    """The links of all splits of an OGB data set, and the negatives for validation and test."""

    src: Array
    """(E,) int64 sources: training links, their reverses, validation links, test links."""
    dst: Array
    """(E,) int64 destinations, in the order of ``src``."""
    splits: dict[str, Array]
    """Edge indices in ``src`` and ``dst``, by split name."""
    negatives: dict[str, Array]
    """Negative pairs by split name: (2, M) shared by all links of the split, or (2, N, K) with K for each of its N links."""
    times: Array | None
    """(E,) years of the edges, or None if the data set has none."""


def read_links(folder: Path) -> OgbLinkSplit:
    """Read the three files of a data set's link split, ``train.pt``, ``valid.pt`` and ``test.pt``.

    Raises:
        InputError: a file is missing, damaged or of another format, or contains objects other than arrays.
    """
    parts = {split: _load(folder / f"{file}.pt") for split, file in _FILES.items()}
    try:
        ends = {split: _ends(part) for split, part in parts.items()}
        negatives = {split: _negatives(parts[split]) for split in ("val", "test")}
        years = [np.asarray(part["year"], np.int64).reshape(-1) for part in parts.values()] if "year" in parts["train"] else []
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder} holds no split of links ({one_line(error)}): remove the data set's folder, so that it is downloaded again"
        ) from None
    src, dst = (np.concatenate([ends["train"][i], ends["train"][1 - i], ends["val"][i], ends["test"][i]]) for i in (0, 1))
    bounds = np.cumsum([0, 2 * len(ends["train"][0]), len(ends["val"][0]), len(ends["test"][0])])
    splits = {split: np.arange(begin, end) for split, begin, end in zip(_FILES, bounds, bounds[1:], strict=False)}
    return OgbLinkSplit(src, dst, splits, negatives, np.concatenate([years[0], *years]) if years else None)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        part = read_torch_file(path)
    except Exception as error:  # a damaged pickle may raise any exception
        raise InputError(
            f"{path} is missing, damaged, or holds more than arrays ({one_line(error)[:200]}): remove the data set's folder, so that it is "
            "downloaded again"
        ) from None
    if not isinstance(part, dict):
        raise InputError(f"{path} holds a {type(part).__name__}: a split of links must be a dictionary of arrays; download it again")
    return part


def _ends(part: Mapping[str, Any]) -> Array:
    """Return a split's links, (2, N) int64: sources, then destinations."""
    pairs = np.stack([part["source_node"], part["target_node"]]) if "source_node" in part else np.asarray(part["edge"]).T
    return _pairs(pairs, 2)


def _negatives(part: Mapping[str, Any]) -> Array:
    if "target_node_neg" not in part:
        return _pairs(np.asarray(part["edge_neg"]).T, 2)
    others = np.asarray(part["target_node_neg"])
    return _pairs(np.stack(np.broadcast_arrays(np.asarray(part["source_node"])[:, None], others)), 3)


def _pairs(pairs: Array, ndim: int) -> Array:
    if pairs.ndim != ndim or len(pairs) != 2 or pairs.dtype.kind != "i":
        raise ValueError(
            f"pairs of nodes have dtype {pairs.dtype} and shape {pairs.shape}: must be integers with {ndim} dimensions, the first of size 2"
        )
    wide: Array = pairs.astype(np.int64, copy=False)
    return wide
