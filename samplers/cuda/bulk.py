"""``Bulk``, a lazy sequence of the mini-batches of a bulk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

Batch = TypeVar("Batch")


class Bulk(Sequence[Batch]):
    """A sequence of mini-batches that are created on access, as views of a driver's buffers, valid until its next bulk."""

    def __init__(self, number: int, make: Callable[[int], Batch]) -> None:
        """Create a sequence of ``number`` batches; ``make`` returns the batch at an index in [0, ``number``)."""
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, b: int) -> Batch: ...

    @overload
    def __getitem__(self, b: slice) -> list[Batch]: ...

    def __getitem__(self, b: int | slice) -> Batch | list[Batch]:
        if isinstance(b, slice):
            return [self._make(i) for i in range(self._number)[b]]
        return self._make(range(self._number)[b])

    def map(self, change: Callable[[int, Batch], Batch]) -> Bulk[Batch]:
        """Return a bulk whose batch at index i is ``change(i, batch)``, with the batch at index i of this bulk."""
        return Bulk(self._number, lambda b: change(b, self._make(b)))
