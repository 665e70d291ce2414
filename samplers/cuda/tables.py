"""``StampedTables``, relabelling tables that consecutive bulks use without clearing them (``hoptrain.kernels.cuda.stamped``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine.gpu_memory.device_stream import Buffers
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.stamped import EMPTY

FIRST_SHARE = 4
"""Initial ``StampedTables.share``: packed tables have space for 1/4 of the nodes that a batch can have."""


class StampedTables:
    """The relabelling tables of one driver.

    Attributes:
        start: start of the numbers of the present bulk, at its last use of the tables.
        span: upper bound of the numbers of a use.
        share: packed tables have space for 1/share of the nodes that a batch can have; 1 is always enough. It is lowered if that was too little, and
            never raised: later bulks may need more than earlier ones, and each change discards the captured bulks.
    """

    def __init__(self, share: int = FIRST_SHARE) -> None:
        """Create no tables yet."""
        self.start, self.span, self.share = EMPTY, 0, share
        self._filled: dict[str, Any] = {}

    def begin(self, launch: Launch, span: int, times: int = 1) -> list[int]:
        """Begin a bulk that uses the tables ``times`` times with numbers below ``span``, as if the tables were empty each time.

        Returns, for each use, the start of its numbers. Once in very many bulks this clears the tables.
        """
        if self.start < times * span:
            self.start = EMPTY
            for entries in self._filled.values():
                _fill(launch, entries)
        starts = [self.start - (time + 1) * span for time in range(times)]
        self.start, self.span = starts[-1], span
        return starts

    def entries(self, buffers: Buffers, launch: Launch, name: str, width: int) -> Any:
        """Return the entries of the table ``name`` for the bulk, (K, ``width`` or more) int32."""
        entries = buffers.array(name, (launch.num_batches, width), np.int32)
        if self._filled.get(name) is not entries:
            self._filled[name] = entries
            _fill(launch, entries)
        return entries


def _fill(launch: Launch, entries: Any) -> None:
    """Clear all rows of hash tables, including rows that only larger bulks use."""
    replace(launch, num_batches=entries.shape[0]).rows(fill_rows, entries.shape[1], entries, EMPTY)
