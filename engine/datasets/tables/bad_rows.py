"""Handling of table rows that cannot be read: raise at the first, report each and raise at the end of the file, or skip them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hoptrain.engine.errors import InputError

SHOWN = 20
"""Number of bad rows per file that are reported one by one."""


class BadRows:
    """A collector of table rows that cannot be read: it raises, reports or skips them.

    Args:
        tell: function that receives one line of text for each of the first ``SHOWN`` bad rows of a file; None to raise at the first bad row.
        skip: True to skip bad rows; False to raise an ``InputError`` at the end of their file.
    """

    def __init__(self, tell: Callable[[str], None] | None = None, *, skip: bool = False) -> None:
        """Start without bad rows."""
        self.tell, self.skip = tell, skip
        self.skipped: dict[str, int] = {}
        self._here = 0

    def add(self, path: Path, place: str, what: str) -> None:
        """Record a bad row by its ``place`` ("line 3"). ``what`` has its value, the rule and the remedy.

        Raises:
            InputError: the row is bad, and rows are neither reported nor skipped.
        """
        line = f"{path}, {place}: {what}"
        if self.tell is None and not self.skip:
            raise InputError(line)
        self._here += 1
        if self.tell is not None and self._here <= SHOWN:
            self.tell(line)

    def end(self, path: Path) -> None:
        """Finish a file.

        Raises:
            InputError: the file has bad rows, and they are not skipped.
        """
        count, self._here = self._here, 0
        if not count:
            return
        if self.tell is not None and count > SHOWN:
            self.tell(f"{path}: and {count - SHOWN:,} more rows")
        if not self.skip:
            raise InputError(f"{path}: {count:,} row{'s' * (count > 1)} cannot be read; edit them, or skip them with --skip-bad-rows")
        self.skipped[path.name] = self.skipped.get(path.name, 0) + count
