"""Rules for table cells by kind of column, checked for whole columns, and cell by cell if a column has an error."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array

Kind: TypeAlias = Literal["id", "key", "text", "weight", "time", "number"]
"""Kind of a column: ``id``, integer node ids; ``key``, names of nodes; ``text``, any text; ``weight`` and ``time`` of edges; ``number``, a feature."""

DTYPES: dict[Kind, Any] = {"id": np.int64, "key": str, "text": str, "weight": np.float64, "time": np.int64, "number": np.float64}
"""The dtype with which pandas reads a column of each kind."""
_RULES: dict[Kind, str] = {
    "id": "the first ids are whole numbers, so all must be; give one, or import ids as names with --ids text",
    "key": "each node must have an id; add one or drop the row",
    "weight": "weights must be finite and 0 or more; give such a weight",
    "time": "times must be whole numbers; use a smaller unit",
    "number": "it must be a finite number; encode it, or leave the column out",
}
EXACT = 1 << 53
"""Smallest integer from which on float64 is not exact."""
_LEADING_ZERO = re.compile(r"[+-]?0\d")
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""An integer in its usual notation: 7, not 007 or 7.0."""


def is_good(kind: Kind, values: Array) -> Array:
    """Return which rows of a column's values, (N,) or (N, D) of its kind's dtype, are in range, (N,) bool."""
    if kind == "key":
        return np.array(values != "", bool)
    if kind not in ("weight", "number"):
        return np.ones(len(values), bool)
    good: Array = np.isfinite(values) & ((values >= 0) | (kind == "number"))
    return good if good.ndim == 1 else np.all(good, axis=1)


def parsed(kind: Kind, cell: str) -> Any:
    """Parse a cell. Return its value, or None if it is not valid for this kind."""
    if kind in ("key", "text"):
        return cell if cell or kind == "text" else None
    cell = cell.strip()
    if WHOLE.fullmatch(cell) and kind in ("id", "time"):
        return int(cell)
    try:
        number = float(cell) if "_" not in cell else math.nan
    except ValueError:
        return None
    if kind in ("id", "time"):  # accept 7.0, which programs write in columns with missing values; 007 is a name
        return int(number) if abs(number) < EXACT and number.is_integer() and not _LEADING_ZERO.match(cell) else None
    return number if math.isfinite(number) and (number >= 0 or kind == "number") else None


def mistake(name: str, kind: Kind, value: object) -> str:
    """Return the message for a wrong value: column, value, rule and remedy."""
    return f"{name} is {str(value)[:60]!r}: {_RULES[kind]}"


def are_whole(texts: Array) -> bool:
    """Return whether all texts (N,) are integers in their usual notation."""
    return all(WHOLE.fullmatch(text) for text in texts)
