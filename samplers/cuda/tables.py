"""Relabelling tables that bulk after bulk uses without clearing them (``hoptrain.kernels.cuda.stamped``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine.gpu_memory.device_stream import Buffers
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.stamped import EMPTY

FIRST_SHARE = 4
"""Of the nodes that a batch can have, packed tables have room for one in so many, until that is too little."""


class StampedTables:
    """Of one driver's bulks.

    Attributes:
        start: what the numbers of the bulk begin with, the last time that it uses the tables.
        span: what is above all of them.
        share: packed tables have room for one in so many of the nodes that a batch can have; 1 is always enough. It does not rise
            again: what a bulk needed bounds no later one's need, and with each change bulks are captured anew.
    """

    def __init__(self, share: int = FIRST_SHARE) -> None:
        """Start without tables."""
        self.start, self.span, self.share = EMPTY, 0, share
        self._filled: dict[str, Any] = {}

    def begin(self, launch: Launch, span: int, times: int = 1) -> list[int]:
        """Let a bulk with numbers below ``span`` start, which uses the tables so many ``times``, as if they were empty each time.

        Once in very many bulks they are filled anew for it. Returns what the numbers begin with, each time.
        """
        if self.start < times * span:
            self.start = EMPTY
            for entries in self._filled.values():
                _fill(launch, entries)
        starts = [self.start - (time + 1) * span for time in range(times)]
        self.start, self.span = starts[-1], span
        return starts

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
