"""Markdown tables of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 120
"""Maximum width of a table in characters; a table with a single wider column exceeds it."""


def markdown(rows: Sequence[Mapping[str, Any]], keys: int = 1) -> str:
    """Return a Markdown table. Its columns have the order in which their names first appear in ``rows``; None and missing values are empty cells.

    A table wider than ``WIDTH`` is split into several below each other, each of which repeats the first ``keys`` columns.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = {name: [name, "---", *("" if row.get(name) is None else str(row[name]).replace("|", "/") for row in rows)] for name in names}
    tables = [names[:keys]]
    for name in names[keys:]:
        if _width([cells[one] for one in (*tables[-1], name)]) > WIDTH and len(tables[-1]) > keys:
            tables.append(names[:keys])
        tables[-1] = [*tables[-1], name]
    return "\n".join(_table([cells[name] for name in own]) for own in tables if own)


def _table(columns: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*columns, strict=True))


def _width(columns: Sequence[Sequence[str]]) -> int:
    return max(map(len, _table(columns).splitlines()))
