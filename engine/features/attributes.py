"""Attributes of the nodes or edges of a graph of Python objects, such as networkx's, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError


class Attributes:
    """The attributes of N nodes or edges, of which some are taken as arrays by name."""

    def __init__(self, name: str, what: str, owners: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the attributes.

        Args:
            name: name of the data set, for messages.
            what: "node" or "edge", for messages.
            owners: the N nodes or edges.
            rows: for each of the N nodes or edges, its attributes by name.
        """
        self._name, self._what, self._owners, self._rows = name, what, owners, rows
        self._left = {key for row in rows for key in row}

    def take(self, *names: str) -> Array | None:
        """Return the values (N,) or (N, C) of the first attribute in ``names`` that exists; None if no such attribute exists.

        Raises:
            InputError: only some of the nodes or edges have the attribute, or its values do not form an array.
        """
        found = next((name for name in names if name in self._left), None)
        if found is None:
            return None
        self._left.discard(found)
        missing = next((owner for owner, row in zip(self._owners, self._rows, strict=True) if found not in row), None)
        if missing is not None:
            raise InputError(
                f"{self._name}: {self._what} {missing!r} has no {found}, and others have one: each {self._what} needs it; add it, or drop it from all"
            )
        try:
            return np.array([row[found] for row in self._rows])
        except ValueError as error:
            raise InputError(
                f"{self._name}: {found} of {self._what}s is not an array ({error}): give each the same number of values"
            ) from None

    def labels(self, *names: str) -> tuple[Array | None, list[str] | None]:
        """Return labels (N,) or (N, C), -1 for a node without a label, and the names of the classes if labels are texts."""
        found = next((name for name in names if name in self._left), None)
        if found is None:
            return None, None
        values = [row.get(found) for row in self._rows]
        texts = sorted({value for value in values if isinstance(value, str)})
        if not texts:
            if any(value is None for value in values):
                values = [-1 if value is None else value for value in values]
            self._left.discard(found)
            return np.array(values), None
        if not all(value is None or isinstance(value, str) for value in values):
            raise InputError(f"{self._name}: {found} has texts and numbers: labels must be one of the two; convert them")
        self._left.discard(found)
        number = {text: place for place, text in enumerate(texts)}
        return np.array([-1 if value is None else number[value] for value in values]), texts

    def left(self) -> list[str]:
        """Return the names of the attributes that were not taken."""
        return sorted(map(str, self._left))
