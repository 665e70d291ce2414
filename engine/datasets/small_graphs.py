"""Many small labelled graphs: one large graph of their vertices side by side, and where each of them begins."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.load import load_dataset
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.errors import InputError, reason_of
from hoptrain.kernels.cpu.shuffle import permutation

FOLDS = 10


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SmallGraphs:
    """G labelled graphs with V vertices in all; read-only.

    Attributes:
        name: for messages.
        vertices: graph and features of all vertices; no edge joins two of the small graphs.
        ptr: (G+1,) int64: graph g has the vertices ``ptr[g]`` to ``ptr[g+1]``.
        y: (G,) int64 classes in [0, num_classes).
        splits: graph numbers, (M,) int64: ``train``, ``val``, ``test``.
        num_classes: number of classes.
    """

    name: str
    vertices: Dataset
    ptr: Array
    y: Array
    splits: Mapping[str, Array]
    num_classes: int


def load_small_graphs(name: str, *, root: str | Path | None = None, fold: int = 0) -> SmallGraphs:
    """Open the graphs of ``name.npz`` in ``root`` or ``$HOPTRAIN_DATA``: as for ``load_dataset``, and ``graph_ptr``, ``graph_y``, ``fold10``.

    Args:
        name: for instance ``tu_mutag``.
        root: folder of the file.
        fold: the one of the ten folds that is the test split; the one after it is for validation, all others for training. Where the file has no
            ``fold10``, folds are dealt out by hoptrain's permutation with seed 0.

    Raises:
        InputError: it is not there, or holds no small graphs with features; a fold that does not exist.
    """
    if not 0 <= fold < FOLDS:
        raise InputError(f"fold is {fold}: there are {FOLDS}; give one from 0 to {FOLDS - 1}")
    vertices = load_dataset(name, root=root)
    path = find_npz(name, None if root is None else Path(root).expanduser())
    if path is None:
        raise not_found(
            name, None if root is None else Path(root), f"put {name}.npz into a folder and name that as root or in $HOPTRAIN_DATA"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            ptr, y, folds = file["graph_ptr"], file["graph_y"], file["fold10"] if "fold10" in file.files else None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} holds no small graphs ({reason_of(error)}): it needs graph_ptr, graph_y; task: nodes reads one graph"
        ) from None
    _check(path, vertices, ptr, y, folds)
    if folds is None:
        folds = np.empty(len(y), np.int64)
        folds[permutation(len(y), 0, 0)] = np.arange(len(y)) % FOLDS
    kinds = {"test": folds == fold, "val": folds == (fold + 1) % FOLDS}
    splits = {split: np.flatnonzero(mask) for split, mask in kinds.items()} | {"train": np.flatnonzero(~(kinds["test"] | kinds["val"]))}
    return SmallGraphs(name=name, vertices=vertices, ptr=ptr, y=y.astype(np.int64), splits=splits, num_classes=int(y.max()) + 1)


def _check(path: Path, vertices: Dataset, ptr: Array, y: Array, folds: Array | None) -> None:
    num_nodes = vertices.graph.num_nodes
    if not len(y) or ptr.shape != (len(y) + 1,) or ptr[0] != 0 or ptr[-1] != num_nodes or (np.diff(ptr) < 1).any():
        raise InputError(
            f"{path}: graph_ptr of shape {ptr.shape} does not share {num_nodes:,} vertices out to {len(y):,} graphs; correct it"
        )
    if not is_integer(y.dtype) or y.min() < 0:
        raise InputError(f"{path}: graph_y is {y.dtype} from {y.min()} on: a class is an integer from 0 on; correct it")
    if folds is not None and (folds.shape != y.shape or not is_integer(folds.dtype)):
        raise InputError(
            f"{path}: fold10 is {folds.dtype} of shape {folds.shape}: one integer for each of the {len(y):,} graphs; correct it"
        )
    if vertices.x is None:
        raise InputError(f"{path} has no features of vertices: this task needs some; add x or node_label")
    counts = np.diff(vertices.graph.indptr)
    own = np.repeat(np.searchsorted(ptr, np.arange(num_nodes), side="right"), counts)
    if (np.searchsorted(ptr, vertices.graph.indices, side="right") != own).any():
        raise InputError(f"{path}: an edge joins two of the small graphs: each stands by itself; correct graph_ptr or the edges")
