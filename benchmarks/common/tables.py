"""Rows of figures as a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with its columns in the order in which their names first appear; nothing stands for None and for what is missing."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [["" if row.get(name) is None else str(row[name]).replace("|", "/") for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [names, ["---"] * len(names), *cells] if names)
