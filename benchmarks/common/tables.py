"""Rows of figures as a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with its columns in the order in which their names first appear; nothing stands for None and for what is missing."""
    names = columns(rows)
    lines = [names, ["---"] * len(names), *([cell(row, name).replace("|", "/") for name in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all rows, each once."""
    return list(dict.fromkeys(name for row in rows for name in row))


def cell(row: Mapping[str, Any], name: str) -> str:
    """A row's text in a column."""
    value = row.get(name)
    return "" if value is None else str(value)
