"""Relabelling tables with an entry for every vertex, which bulk after bulk uses without clearing them (``hoptrain.kernels.cuda.direct``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine.device import Buffers
from hoptrain.kernels.cuda.direct import EMPTY
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.rows import fill_rows


class DirectTables:
    """Of one driver's bulks.

    Attributes:
        start: what the numbers of the bulk begin with.
    """

    def __init__(self) -> None:
        """Start without tables."""
        self.start = EMPTY
        self._filled: dict[str, Any] = {}

    def begin(self, launch: Launch, span: int) -> int:
        """Let a bulk with numbers below ``span`` start; returns ``start``. Once in very many bulks the tables are filled anew for it."""
        if self.start < span:
            self.start = EMPTY
            for entries in self._filled.values():
                _fill(launch, entries)
        self.start -= span
        return self.start

    def entries(self, buffers: Buffers, launch: Launch, name: str, num_vertices: int) -> Any:
        """(K, V) int32 of the bulk."""
        entries = buffers.array(name, (launch.num_batches, num_vertices), np.int32)
        if self._filled.get(name) is not entries:
            self._filled[name] = entries
            _fill(launch, entries)
        return entries


def _fill(launch: Launch, entries: Any) -> None:
    """All rows, also those of larger bulks."""
    replace(launch, num_batches=entries.shape[0]).rows(fill_rows, entries.shape[1], entries, EMPTY)
