"""Conversions and checks of a data set's features, labels, targets and splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, check_numbers, is_integer
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.quantized import QuantizedRows, Rows

_SEVERAL = {"node": "nodes", "edge": "edges", "graph": "graphs"}


def as_feature_array(rows: Any) -> Any:
    """Return a tensor or array-like as a C-contiguous array, as the gather kernels need. ``QuantizedRows``, ``StoredRows`` and None stay as they are."""
    if rows is None or isinstance(rows, QuantizedRows) or _is_stored(rows):
        return rows
    array = as_array(rows)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _is_stored(rows: Any) -> bool:
    """Return whether rows are ``StoredRows``. Data sets do not import this class of the storage package, so its attribute is tested."""
    return hasattr(rows, "row_bytes")


def as_rows(edge_attr: Any) -> Any:
    """Return edge features as an array (R, D); (R,) becomes (R, 1)."""
    rows = as_feature_array(edge_attr)
    return rows[:, None] if rows is not None and rows.ndim == 1 else rows


def check_features(name: str, x: Rows | None, num_nodes: int) -> None:
    """Raise InputError unless features have one row of finite numbers for each node."""
    if x is None:
        return
    if x.ndim != 2 or len(x) != num_nodes:
        raise InputError(f"{name}: x has shape {x.shape}: features need one row for each of the {num_nodes:,} nodes; reshape x")
    _check_numbers(name, "x", x)


def check_edge_features(name: str, edge_attr: Rows | None, num_ids: int) -> None:
    """Raise InputError unless edge features have one row of finite numbers for each edge id, for at least ``num_ids`` ids."""
    if edge_attr is None:
        return
    if edge_attr.ndim != 2 or len(edge_attr) < num_ids:
        raise InputError(
            f"{name}: edge_attr has shape {edge_attr.shape}: it needs one row for each edge in the order of edge_index, {num_ids:,} or more; reshape it"
        )
    _check_numbers(name, "edge_attr", edge_attr)


def _check_numbers(name: str, what: str, rows: Rows) -> None:
    if not isinstance(rows, QuantizedRows):
        if isinstance(rows, np.ndarray):
            check_numbers(name, what, rows)
        return
    columns, codes = rows.columns, rows.codes
    if codes.dtype != np.uint8 or codes.shape[1:] != (columns.width,):
        raise InputError(
            f"{name}: {what} has codes {codes.dtype} of shape {codes.shape}: {columns.format} codes of {len(columns.scale)} columns must be uint8 "
            f"({len(codes)}, {columns.width}); quantise it again"
        )
    if not (np.isfinite(columns.scale).all() and np.isfinite(columns.zero).all()):
        raise InputError(f"{name}: {what} has a scale or a zero that is not finite: both must be finite; quantise it again")


def num_classes_of(y: Array) -> int:
    """Return the number of classes: C for (V, C), the largest class plus one for integers (V,), 1 for targets (V,), 0 for other arrays."""
    if y.ndim not in (1, 2) or y.dtype.kind not in "iubf":
        return 0
    return int(y.shape[1]) if y.ndim == 2 else 1 if y.dtype.kind == "f" else max(int(y.max()) + 1, 0) if len(y) else 0


def label_dtype(y: Array) -> Any:
    """Return the stored dtype of labels: float32 for targets, int64 for classes, uint8 for multi-labels, int8 if some of these are unknown."""
    return (
        np.float32
        if y.dtype.kind == "f"
        else np.int64
        if y.ndim == 1
        else np.uint8
        if y.dtype.kind == "u" or y.min(initial=0) >= 0
        else np.int8
    )


def as_ids(name: str, split: str, ids: Array, num_nodes: int, what: str = "nodes") -> Array:
    """Return the ids of a split that is given as ids or as a boolean mask (V,). ``what`` names the items in messages."""
    if ids.dtype != bool:
        return ids
    if ids.shape != (num_nodes,):
        raise InputError(
            f"{name}: the mask of split {split} has shape {ids.shape}: it must be one bool for each of the {num_nodes:,} {what}; give one, or ids"
        )
    return np.flatnonzero(ids)


def check_labels(name: str, y: Array | None, number: int, num_classes: int, what: str = "node") -> None:
    """Raise InputError unless there is one label or row of labels for each of ``number`` nodes, edges or graphs, within the valid range.

    Regression targets must be finite, or NaN for no label.
    """
    if y is None:
        return
    is_target = y.dtype.kind == "f"
    if y.ndim not in (1, 2) or len(y) != number or not (is_target or is_integer(y.dtype)):
        raise InputError(
            f"{name}: y is {y.dtype} of shape {y.shape}: labels must be integers, or floating targets, one (or one row) for each of the {number:,} "
            f"{_SEVERAL[what]}; reshape or convert it"
        )
    if y.ndim == 2 and y.shape[1] != num_classes:
        raise InputError(
            f"{name}: y has {y.shape[1]} columns, but num_classes is {num_classes}: they must be equal; set num_classes to the number of columns"
        )
    if is_target:
        if np.isinf(y).any():
            raise InputError(f"{name}: y has infinities: targets must be finite, or NaN for none; replace them")
        return
    low, high = -1, num_classes if y.ndim == 1 else 2
    bad = np.argwhere((y < low) | (y >= high))
    if len(bad):
        place = ", ".join(str(i) for i in bad[0])
        raise InputError(
            f"{name}: y[{place}] is {y[tuple(bad[0])]}: labels must be in [{low}, {high}); correct y or num_classes ({num_classes})"
        )


def label_notes(y: Array | None, num_classes: int) -> list[str]:
    """Return a line for each property of labels that often indicates a mistake: classes that no node has, one-hot labels, targets that are whole numbers."""
    if y is None or not len(y):
        return []
    if y.ndim == 2 and y.dtype.kind != "f":
        is_one_hot = y.shape[1] > 1 and ((y == 1).sum(axis=1) == 1).all()
        return (
            ["labels: each row has exactly one 1, but is learnt as several labels per node; for classes give y.argmax(axis=1)"]
            if is_one_hot
            else []
        )
    if y.dtype.kind == "f":
        return []
    found = len(np.unique(y[y >= 0]))
    many = found > 20 and 2 * found > int((y >= 0).sum())
    notes = [f"labels: {num_classes:,} classes, of which {num_classes - found:,} have no node; number classes from 0 without gaps"] * (
        found < num_classes
    )
    return notes + ["labels: most nodes have a class of their own; for targets give numbers with a fraction, such as 3.5"] * many


def check_split(name: str, split: str, ids: Array, number: int, y: Array | None, what: str = "node") -> None:
    """Raise InputError if a split is not a list of distinct, labelled nodes (or edges) in [0, number)."""
    if not split.isidentifier():
        raise InputError(
            f"{name}: a split is named {split!r}: it becomes part of a file name, so it must consist of letters, digits and _; rename it"
        )
    if ids.ndim != 1 or not is_integer(ids.dtype):
        raise InputError(
            f"{name}: split {split} is {ids.dtype} of shape {ids.shape}: a split must be a list of {what} ids; use np.flatnonzero(mask)"
        )
    bad = ids[(ids < 0) | (ids >= number)]
    if len(bad):
        raise InputError(f"{name}: split {split} names {what} {bad[0]}: {_SEVERAL[what]} are 0 to {number - 1}; drop it from the split")
    if len(np.unique(ids)) != len(ids):
        raise InputError(
            f"{name}: split {split} names {'an' if what == 'edge' else 'a'} {what} twice: every {what} must occur once; use np.unique(ids)"
        )
    if y is None or (y.ndim == 2 and y.dtype.kind != "f"):
        return
    is_none = np.isnan(y[ids]).reshape(len(ids), -1).any(1) if y.dtype.kind == "f" else y[ids] < 0
    if is_none.any():
        item = ids[np.flatnonzero(is_none)[0]]
        raise InputError(
            f"{name}: {what} {item} of split {split} has no label ({y[item]}): a split must hold labelled {_SEVERAL[what]}; drop it from the split"
        )
