"""Splits of a data set: normalised names, and random splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.errors import InputError, an
from hoptrain.kernels.cpu.shuffle import permutation

SPLITS = ("train", "val", "test")
_SYNONYMS = {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}
MASKS = tuple(f"{split}_mask" for split in (*SPLITS, "valid", "validation"))
"""Names of masks in tables, and in the objects of PyG, DGL and networkx."""
SPLIT_WORDS = ("random", "test")
"""Words that name splits of labelled nodes: 60/20/20 at random, or all of them in the split ``test``."""
ALL_IN_TEST = "all labelled nodes"
"""Description of the split of the word ``test``."""
Value = TypeVar("Value")


def split_name(name: str) -> str:
    """Return the name under which a split is stored. Synonyms become ``train``, ``val`` or ``test``, also before a suffix such as ``_60``.

    Examples:
        >>> split_name("valid_60"), split_name("Training"), split_name("fold1")
        ('val_60', 'train', 'fold1')
    """
    first, joint, rest = name.partition("_")
    first = first.lower()
    return f"{_SYNONYMS.get(first, first)}{joint}{rest}" if first in _SYNONYMS or first in SPLITS else name


def by_split_name(owner: str, splits: Mapping[str, Value]) -> dict[str, Value]:
    """Return ``splits`` with its keys normalised by ``split_name``. ``owner`` is the data set's name, for messages.

    Raises:
        InputError: ``splits`` is no dictionary, or has two names of the same split.
    """
    if not isinstance(splits, Mapping):
        given: Any = splits
        remedy = "use with_random_splits() of the data set" if given == "random" else "give a dictionary of node ids or masks by name"
        raise InputError(
            f"{owner}: splits is {an(type(given).__name__)}: it must be a dictionary such as splits={{'train': ids}}; {remedy}"
        )
    named: dict[str, Value] = {}
    for name, value in splits.items():
        if split_name(name) in named:
            raise InputError(f"{owner}: two splits are named {name} and {split_name(name)}: both are the same split; leave one of them out")
        named[split_name(name)] = value
    return named


def masks_in(held: Any) -> dict[str, Array]:
    """Return the masks (V,) of a PyG or DGL object, or of a dictionary, by split, for example ``train_mask`` as ``train``."""
    return {name.removesuffix("_mask"): as_array(mask).astype(bool) for name in MASKS if (mask := held.get(name)) is not None}


def random_splits(ids: Array, train: float = 0.6, val: float = 0.2, seed: int = 0) -> dict[str, Array]:
    """Split node ids (N,) into ``train``, ``val`` and ``test``, by default 60/20/20, identically on every machine and with every library version."""
    order = ids[permutation(len(ids), np.uint64(seed), 0)].astype(np.int64)
    bounds = [int(len(ids) * share + 1e-9) for share in (train, train + val)]
    return {name: np.sort(part) for name, part in zip(SPLITS, np.split(order, bounds), strict=True)}


def all_in_test(name: str, y: Array | None) -> dict[str, Array]:
    """Return the split ``test`` of all nodes that have a label in ``y`` (V,) or (V, C). ``name`` is the data set's name, for messages.

    Raises:
        InputError: no node has a label.
    """
    labelled = np.empty(0, np.int64) if y is None else _with_label(y)
    if not len(labelled):
        raise InputError(f"{name}: no node has a label: a test needs labels; name the column of labels, or leave --split test out")
    return {"test": labelled}


def _with_label(y: Array) -> Array:
    is_one = ~np.isnan(y) if y.dtype.kind == "f" else y >= 0
    return np.flatnonzero(is_one if is_one.ndim == 1 else is_one.all(axis=1))


def labelled_nodes(name: str, y: Array | None, num_nodes: int) -> Array:
    """Return the nodes to split at random: those with a label, or all if there are no labels.

    Raises:
        InputError: there are too few nodes for three splits.
    """
    labelled = np.arange(num_nodes) if y is None else _with_label(y)
    if len(labelled) < len(SPLITS):
        raise InputError(
            f"{name}: {len(labelled)} labelled nodes cannot be split at random: {', '.join(SPLITS)} need one each; label more, or name the nodes of "
            "each split"
        )
    return labelled
