"""Rules for table cells by kind of column. They are checked for whole columns, and if a column has a wrong cell, cell by cell."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array

Kind: TypeAlias = Literal["id", "key", "text", "time", "cell"]
"""Kind of a column: ``id``, integer node ids; ``key``, names of nodes; ``text``, any text; ``time``, integer times of edges; ``cell``, feature values.

A ``cell`` column is read piece by piece: as numbers, or as texts in a piece with a cell that is not a number (see ``encodings.py``).
"""

DTYPES: dict[Kind, Any] = {"id": np.int64, "key": str, "text": str, "time": np.int64, "cell": None}
"""Kind of a column -> dtype with which pandas reads the column; None lets pandas infer the dtype."""
RULES: dict[Kind, str] = {
    "id": "the first ids are whole numbers, so all must be; give one, or import ids as names with --ids text",
    "key": "each node must have an id; add one or drop the row",
    "time": "times must be whole numbers or dates such as 2021-03-04; use a smaller unit, or write dates so",
}
EXACT = 1 << 53
"""Largest integer up to which float64 represents all integers exactly."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""Pattern of an integer in its usual notation: 7, not 007 or 7.0."""


def is_good(kind: Kind, values: Array) -> Array:
    """Return which values (N,) of a text file's column are valid, (N,) bool. The values have the dtype of the column's kind."""
    if kind == "key":
        return np.array(values != "", bool)
    if kind == "cell" and values.dtype.kind == "f":
        return np.isfinite(values)
    return np.ones(len(values), bool)


def parsed(kind: Kind, cell: str) -> Any:
    """Parse a cell. Return its value, or None if it is not valid for this kind."""
    if kind in ("key", "text", "cell"):
        return None if kind == "key" and not cell else cell
    cell = cell.strip()
    if WHOLE.fullmatch(cell):
        return int(cell)
    # 7.0 counts as 7, since programs write it in columns with missing values; 007 is a name
    number = math.nan if "," in cell else as_number(cell)
    return int(number) if abs(number) < EXACT and number.is_integer() and not _LEADING_ZERO.match(cell) else None


def as_number(cell: str) -> float:
    """Return the number in a cell, such as 7, -0.5, 1e-3 or 1,457.01; NaN if the cell is not a number."""
    text = cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def are_whole(texts: Array) -> bool:
    """Return whether all texts (N,) are integers in their usual notation."""
    return all(WHOLE.fullmatch(text) for text in texts)
