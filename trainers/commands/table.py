"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows of text in columns of equal width; those whose numbers are in ``right`` stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as aligned columns, in the order in which their names first appear; numbers to the right, nothing for what is missing."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    rows = [[_cell(record.get(column)) for column in columns] for record in records]
    numeric = [i for i, column in enumerate(columns) if all(isinstance(record.get(column), float | int | None) for record in records)]
    return aligned([columns, *rows], numeric)


def megabytes(count: float) -> str:
    """Bytes in MB."""
    return f"{count / 1e6:,.2f} MB"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
