"""Mini-batches whose features are gathered when something reads them, for models that sum rows of the feature table itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.minibatch import MiniBatch, SampledBatch
from hoptrain.samplers.batch.transfer import as_tensor


class TableRows:
    """Rows of a feature table that are gathered when ``gathered`` is first called.

    Attributes:
        table: (V, F) float32, C-contiguous.
        ids: (S,) numbers of the rows.
    """

    def __init__(self, table: Array, ids: Array, gather: Callable[[int], Any]) -> None:
        """Store the table, the row numbers, and a function that returns the first N of the rows as an array or a tensor."""
        self.table, self.ids = table, ids
        self._gather = gather
        self._rows: Any = None

    def gathered(self) -> Any:
        """Return the rows (S, F)."""
        if self._rows is None:
            self._rows = self._gather(len(self.ids))
        return self._rows

    def first(self, number: int) -> Any:
        """Return the first ``number`` rows, without gathering the others."""
        return self._gather(number) if self._rows is None else self._rows[:number]


class TableBatch(MiniBatch):
    """A ``MiniBatch`` on the CPU whose features are gathered when ``x`` is first read."""

    __slots__ = ()

    @classmethod
    def of(cls, batch: MiniBatch, x: Any) -> TableBatch:
        """Return a batch with the fields of ``batch`` and the features ``x``, for instance ``TableRows``."""
        return cls(**{own.name: getattr(batch, own.name) for own in fields(batch) if own.name != "x"}, x=x)

    @property
    def x(self) -> Any:
        """(S, F) features of the input nodes, or None."""
        x = _FIELD.__get__(self)
        return x.gathered() if isinstance(x, TableRows) else x

    @x.setter
    def x(self, x: Any) -> None:
        _FIELD.__set__(self, x)

    @property
    def table_rows(self) -> TableRows | None:
        """The table and the row numbers of the features; None if the batch was created with gathered features."""
        x = _FIELD.__get__(self)
        return x if isinstance(x, TableRows) else None

    def to(self, device: Any) -> TableBatch:
        """Return the mini-batch as torch tensors on ``device``. On the CPU, features that nothing has read stay in the table."""
        import torch

        rows = self.table_rows
        if rows is None or torch.device(device).type != "cpu":
            return SampledBatch.to(self, device)
        without = SampledBatch.to(TableBatch.of(self, None), device)
        return TableBatch.of(without, TableRows(rows.table, rows.ids, lambda number: as_tensor(rows.first(number))))


_FIELD: Any = vars(SampledBatch)["x"]
"""The descriptor of the field ``x``, which the property of ``TableBatch`` hides."""
