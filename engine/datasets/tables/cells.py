"""What a cell of a table may be, by the kind of its column: checked a column at a time, and one by one where that finds something."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array

Kind: TypeAlias = Literal["id", "key", "text", "weight", "time", "number"]
"""``id``: a node's whole number; ``key``: a node's name; ``text``: anything, nothing too; ``weight`` of an edge, its ``time``; ``number``: a feature."""

DTYPES: dict[Kind, Any] = {"id": np.int64, "key": str, "text": str, "weight": np.float64, "time": np.int64, "number": np.float64}
"""What pandas reads a column as."""
_RULES: dict[Kind, str] = {
    "id": "the first ids are whole numbers, so all have to be; correct it, or import names by --ids text",
    "key": "each node has an id; correct it or drop the row",
    "weight": "weights are finite and not negative; correct it",
    "time": "times are whole numbers; count a smaller unit",
    "number": "it has to be a finite number; encode it, or leave the column out",
}
EXACT = 1 << 53
"""From here on a double is not every whole number."""
_LEADING_ZERO = re.compile(r"[+-]?0\d")
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""A whole number as it is written by itself: 7, not 007 or 7.0."""


def is_good(kind: Kind, values: Array) -> Array:
    """Which values (N,) or (N, D) of a column, of its kind's dtype already, are in their range: (N,) bool."""
    if kind == "key":
        return np.array(values != "", bool)
    if kind not in ("weight", "number"):
        return np.ones(len(values), bool)
    good: Array = np.isfinite(values) & ((values >= 0) | (kind == "number"))
    return good if good.ndim == 1 else np.all(good, axis=1)


def parsed(kind: Kind, cell: str) -> Any:
    """A cell's value, or None if it has none of this kind."""
    if kind in ("key", "text"):
        return cell if cell or kind == "text" else None
    cell = cell.strip()
    if WHOLE.fullmatch(cell) and kind in ("id", "time"):
        return int(cell)
    try:
        number = float(cell) if "_" not in cell else math.nan
    except ValueError:
        return None
    if kind in ("id", "time"):  # 7.0 is 7, as programs write whole numbers in a column with gaps; 007 is a name
        return int(number) if abs(number) < EXACT and number.is_integer() and not _LEADING_ZERO.match(cell) else None
    return number if math.isfinite(number) and (number >= 0 or kind == "number") else None


def mistake(name: str, kind: Kind, value: object) -> str:
    """What is wrong with a value."""
    return f"{name} is {str(value)[:60]!r}: {_RULES[kind]}"


def are_whole(texts: Array) -> bool:
    """Whether all texts (N,) are whole numbers as they are written by themselves."""
    return all(WHOLE.fullmatch(text) for text in texts)
