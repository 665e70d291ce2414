"""Rows that cannot be read: the first ends the reading, or each is told and the last line of the file ends it, or they are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hoptrain.engine.errors import InputError

SHOWN = 20
"""So many rows of a file are told one by one."""


class BadRows:
    """What becomes of rows that cannot be read.

    Args:
        tell: is given a line about each of them, the first ``SHOWN`` of a file; by default the first one is raised.
        skip: leave them out; otherwise the reading of their file ends with an ``InputError``.
    """

    def __init__(self, tell: Callable[[str], None] | None = None, *, skip: bool = False) -> None:
        """None so far."""
        self.tell, self.skip = tell, skip
        self.skipped: dict[str, int] = {}
        self._here = 0

    def add(self, path: Path, place: str, what: str) -> None:
        """A row of a file, by its ``place`` ("line 3"): what its value is, the rule and the remedy.

        Raises:
            InputError: just that, where nobody is told.
        """
        line = f"{path}, {place}: {what}"
        if self.tell is None and not self.skip:
            raise InputError(line)
        self._here += 1
        if self.tell is not None and self._here <= SHOWN:
            self.tell(line)

    def end(self, path: Path) -> None:
        """At the end of a file.

        Raises:
            InputError: it has rows that cannot be read, and they are not left out.
        """
        count, self._here = self._here, 0
        if not count:
            return
        if self.tell is not None and count > SHOWN:
            self.tell(f"{path}: and {count - SHOWN:,} rows more")
        if not self.skip:
            raise InputError(f"{path}: {count:,} row{'s' * (count > 1)} cannot be read; correct them, or leave them out by --skip-bad-rows")
        self.skipped[path.name] = self.skipped.get(path.name, 0) + count
