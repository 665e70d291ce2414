"""Relabelling tables that bulk after bulk uses without clearing them (``hoptrain.kernels.cuda.stamped``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine.device import Buffers
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.stamped import EMPTY

FIRST_SHARE = 4
"""Of the nodes that a batch can have, packed tables have room for one in so many, until that is too little."""


class StampedTables:
    """Of one driver's bulks.

    Attributes:
        start: what the numbers of the bulk begin with.
        span: what is above all of them.
        share: packed tables have room for one in so many of the nodes that a batch can have; 1 is always enough.
    """

    def __init__(self, share: int = FIRST_SHARE) -> None:
        """Start without tables."""
        self.start, self.span, self.share = EMPTY, 0, share
        self._filled: dict[str, Any] = {}

    def begin(self, launch: Launch, span: int) -> int:
        """Let a bulk with numbers below ``span`` start; returns ``start``. Once in very many bulks the tables are filled anew for it."""
        if self.start < span:
            self.start = EMPTY
            for entries in self._filled.values():
                _fill(launch, entries)
        self.start, self.span = self.start - span, span
        return self.start

    def entries(self, buffers: Buffers, launch: Launch, name: str, width: int) -> Any:
        """(K, ``width`` or more) int32 of the bulk."""
        entries = buffers.array(name, (launch.num_batches, width), np.int32)
        if self._filled.get(name) is not entries:
            self._filled[name] = entries
            _fill(launch, entries)
        return entries


def _fill(launch: Launch, entries: Any) -> None:
    """All rows, also those of larger bulks."""
    replace(launch, num_batches=entries.shape[0]).rows(fill_rows, entries.shape[1], entries, EMPTY)
