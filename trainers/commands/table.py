"""Formats tables and quantities for the terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hoptrain.engine.errors import printable

_LONGEST = 32
"""Maximum length of a text in a table that is wider than the terminal; longer texts are cut."""


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return rows of text as aligned columns. Columns whose indices are in ``right`` are right-aligned; control characters are escaped."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun in singular or plural, such as ``1 step`` or ``2,000 steps``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def table(records: Sequence[Mapping[str, Any]], width: int = sys.maxsize) -> str:
    """Return records as aligned columns, in the order in which their names first appear. Numbers are right-aligned; missing values are blank.

    If the table is wider than ``width``, columns with one value for all records become a line below the table, and long texts are cut. Columns that
    still do not fit are left out and counted.

    Args:
        records: one mapping from column name to value for each row.
        width: width of the terminal, in characters.
    """
    columns = list(dict.fromkeys(key for record in records for key in record))
    whole = _aligned(records, columns)
    if len(whole.partition("\n")[0]) <= width:
        return whole
    values = {column: {_cell(record.get(column)) for record in records} for column in columns}
    same = {column: found.pop() for column, found in values.items() if len(found) == 1 and len(records) > 1}
    varying = [column for column in columns if column not in same] or columns[:1]
    short = [{column: _cut(record.get(column)) for column in varying} for record in records]
    fitting = next((n for n in range(len(varying), 1, -1) if _width(_aligned(short, varying[:n])) <= width), 1)
    told = [f"{column} {value}" for column, value in same.items() if value]
    left = f"columns that do not fit here: {len(varying) - fitting} (the file has them)" if fitting < len(varying) else ""
    notes = [f"in all rows: {', '.join(told)}" if told else "", left]
    return "\n".join([_aligned(short, varying[:fitting]), *(line for note in notes if note for line in ["", *textwrap.wrap(note, width)])])


def _aligned(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    rows = [[_cell(record.get(column)) for column in columns] for record in records]
    numeric = [i for i, column in enumerate(columns) if all(isinstance(record.get(column), float | int | None) for record in records)]
    return aligned([columns, *rows], numeric)


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def megabytes(count: float) -> str:
    """Return a number of bytes as text in MB."""
    return f"{count / 1e6:,.2f} MB"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cut(value: Any) -> Any:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
