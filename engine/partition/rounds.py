"""Rounds in which machines exchange feature rows ahead of the batches, for a window of steps at once.

There is one round per window. In it a machine sends the rows requested in the previous round, and requests those of its next window. So each row is sent
at most once per window, and not at all while it is cached. A run of W windows takes W + 1 rounds, in the same order on all machines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import NOTHING, Exchange
from hoptrain.engine.partition.rank_rows import as_bytes
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.queue.message_slot import Written


class WindowRows:
    """The row exchange of the process that fills a machine's cache.

    Attributes:
        num_fetched: number of rows received so far.
    """

    def __init__(self, rows: PartitionedFeatures, exchange: Exchange) -> None:
        """Create the exchange of rows; ``begin`` starts a run, which is one iteration over a loader."""
        self._rows, self._exchange = rows, exchange
        self._dtype = id_dtype(len(rows))
        self.num_fetched = 0
        self.begin()

    def begin(self) -> None:
        """Begin a run (one iteration over a loader), without pending requests."""
        none = np.empty(0, self._dtype)
        self._asked, self._owed = [none] * self._exchange.size, [none] * self._exchange.size

    def next(self, wanted: Array) -> None:
        """Run a round. The rows that were requested in the previous round become available to ``PartitionedFeatures.read``.

        Args:
            wanted: (M,) distinct nodes, ascending, whose rows the next window needs; those of this machine are ignored.

        Raises:
            InputError: the exchange fails, or rows cannot be read.
        """
        rows, here, size = self._rows, self._exchange.rank, self._exchange.size
        owners = rows.owner(wanted)
        asks = [wanted[owners == part] if part != here else wanted[:0] for part in range(size)]
        rows.put({})  # drop the rows of the previous window, which are no longer needed
        to = [NOTHING if part == here else self._message(self._owed[part], rows.numbers(asks[part], part)) for part in range(size)]
        self._take(self._exchange.exchange(to))
        self._asked = asks

    def _message(self, owed: Array, asked: Array) -> Written:
        """Return a message for another machine: the rows that it requested, and the indices of the rows requested from it."""
        end = len(owed) * self._rows.row_bytes

        def write(out: Array) -> None:
            self._rows.of_own(owed, out[:end].reshape(-1, self._rows.row_bytes))
            out[end:] = as_bytes(asked, self._dtype)

        return Written(end + len(asked) * self._dtype.itemsize, write)

    def _take(self, got: Sequence[Array]) -> None:
        """Store the received rows, which stay in the receive buffer, and the requests of other machines."""
        rows, came = self._rows, dict[int, tuple[Array, Array]]()
        for part, message in enumerate(got):
            if part == self._exchange.rank:
                continue
            ids = self._asked[part]
            end = len(ids) * rows.row_bytes
            came[part] = ids, message[:end].reshape(-1, rows.row_bytes)
            self._owed[part] = message[end:].copy().view(self._dtype)
            self.num_fetched += len(ids)
        rows.put(came)
