"""Rounds in which rows travel between machines ahead of the batches, for a window of steps at once.

There is one round to a window: a machine sends the rows that it was asked for a round ago, and asks for those of its next window. So each row
travels once a window at most, and not at all while a cache holds it. A run of W windows takes W + 1 rounds, in the same order on all machines.
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
    """The rounds of the process that fills a machine's cache.

    Attributes:
        num_fetched: rows that came so far.
    """

    def __init__(self, rows: PartitionedFeatures, exchange: Exchange) -> None:
        """Begin before the first run."""
        self._rows, self._exchange = rows, exchange
        self._dtype = id_dtype(len(rows))
        self.num_fetched = 0
        self.begin()

    def begin(self) -> None:
        """A run begins: nothing is asked for."""
        none = np.empty(0, self._dtype)
        self._asked, self._owed = [none] * self._exchange.size, [none] * self._exchange.size

    def next(self, wanted: Array) -> None:
        """Make a round: what was asked for in the one before comes, for ``PartitionedFeatures.read``.

        Args:
            wanted: (M,) distinct nodes, ascending, whose rows are needed for the next window; those of this machine do not count.

        Raises:
            InputError: as ``Exchange``, and as rows are read.
        """
        rows, here, size = self._rows, self._exchange.rank, self._exchange.size
        owners = rows.owner(wanted)
        asks = [wanted[owners == part] if part != here else wanted[:0] for part in range(size)]
        rows.put({})  # those of the window before are used up
        to = [NOTHING if part == here else self._message(self._owed[part], rows.numbers(asks[part], part)) for part in range(size)]
        self._take(self._exchange.exchange(to))
        self._asked = asks

    def _message(self, owed: Array, asked: Array) -> Written:
        """Rows that another machine asked for, and the numbers of those that are asked of it."""
        end = len(owed) * self._rows.row_bytes

        def write(out: Array) -> None:
            self._rows.of_own(owed, out[:end].reshape(-1, self._rows.row_bytes))
            out[end:] = as_bytes(asked, self._dtype)

        return Written(end + len(asked) * self._dtype.itemsize, write)

    def _take(self, got: Sequence[Array]) -> None:
        """What the others sent: rows that were asked for, which stay where they came, and what they ask for."""
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
