"""Handling of table rows that cannot be read: report a line for each column and rule, then raise an error, or skip up to a fraction of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, join_limited

SHOWN = 50
"""Maximum number of columns per file for which bad rows are reported."""


class _Group(NamedTuple):
    """A group of bad rows of a file that break the same rule in the same column: the first row and its value, and all rows in parts."""

    place: int
    value: str
    places: list[Array]


class BadRows:
    """A collector of table rows that cannot be read.

    Args:
        tell: function that receives a line of text for each column and broken rule of a file; None to raise an error for the first bad row.
        skip: largest fraction of a file's rows that may be skipped; None to skip no rows.
    """

    def __init__(self, tell: Callable[[str], None] | None = None, *, skip: float | None = None) -> None:
        """Create a collector without bad rows."""
        self.tell, self.skip = tell, skip
        self._groups: dict[tuple[Path, str, str], _Group] = {}
        self._places: dict[Path, list[Array]] = {}
        self._rows: dict[Path, int] = {}

    def add(self, path: Path, places: Sequence[int] | Array, what: str, values: Sequence[object] | Array, rule: str) -> None:
        """Record bad rows.

        Args:
            path: file of the rows.
            places: line or row numbers (N,).
            what: beginning of the message, such as ``weight is``, which the value follows.
            values: the wrong values (N,).
            rule: the rule that the values break, and the remedy.
        """
        if len(places):
            group = self._groups.setdefault((path, what, rule), _Group(int(places[0]), str(values[0])[:60], []))
            group.places.append(np.asarray(places, np.int64))
            self._places.setdefault(path, []).append(np.asarray(places, np.int64))

    def end(self, path: Path, unit: str, number: int) -> None:
        """Report the bad rows that were recorded for a file, in one line for all columns that break the same rule with the same first value.

        Args:
            path: path of the file.
            unit: how rows are counted in messages, ``line`` or ``row``.
            number: total number of the file's rows, with the bad ones.

        Raises:
            InputError: there are bad rows, and they are neither to be reported nor to be skipped.
        """
        self._rows[path] = number
        ended = {key: self._groups.pop(key) for key in list(self._groups) if key[0] == path}
        alike: dict[tuple[str, str], list[tuple[str, _Group]]] = {}
        for (_, what, rule), group in sorted(ended.items(), key=lambda entry: entry[1].place):
            alike.setdefault((rule, group.value), []).append((what, group))
        if self.tell is not None and len(alike) > SHOWN:
            self.tell(f"{path}: {len(alike):,} wrong columns, of which {SHOWN} are shown")
        for (rule, value), groups in list(alike.items())[:SHOWN]:
            (what, first), *others = groups
            count = len(np.unique(np.concatenate([part for _, group in groups for part in group.places])))
            more = f" and {count - 1:,} more of {number:,} rows" if count > 1 else ""
            also = f" (also {join_limited([other.removesuffix(' is') for other, _ in others])})" if others else ""
            line = f"{path}, {unit} {first.place}{more}: {what} {value!r}{also}: {rule}"
            if self.tell is not None:
                self.tell(line)
            elif self.skip is None:
                raise InputError(line)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Number of bad rows and number of all rows, for each file with bad rows."""
        found = {path: len(np.unique(np.concatenate(places))) for path, places in self._places.items()}
        return {path.name: (count, self._rows[path]) for path, count in found.items()}

    def finish(self) -> None:
        """Check that all bad rows may be skipped.

        Raises:
            InputError: there are bad rows and none may be skipped, or the fraction of bad rows in a file is larger than ``skip``.
        """
        told = ", ".join(f"{count:,} of {number:,} rows of {name}" for name, (count, number) in self.counts.items())
        if told and self.skip is None:
            raise InputError(f"{told} cannot be read: fix them as the lines above say, or leave them out with --skip-bad-rows")
        for name, (count, number) in self.counts.items():
            if self.skip is not None and count > self.skip * number:
                raise InputError(
                    f"{count:,} of {number:,} rows of {name} cannot be read: at most {self.skip:.0%} may be left out of a file; fix them, or "
                    f"allow more with --skip-bad-rows {ceil(100 * count / number) / 100:g}"
                )
