"""Exchange rounds that carry a run number (a run is one iteration over a loader), so that machines never mix rounds of different runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import NOTHING, Exchange
from hoptrain.engine.queue.message_slot import Message, Written, size_of, write_into

_RUN = np.dtype(np.int64)


class LeftRunError(Exception):
    """An error that tells that other machines have begun a later iteration over their loaders, so this machine's iteration has ended."""


class RunExchange:
    """An ``Exchange`` whose messages begin with the number of the run, which is one iteration over a loader.

    Attributes:
        rank: index of this machine.
        size: number of machines.
        run: number of the run, equal on all machines.
        num_rounds: number of rounds so far.
        num_sent: number of bytes sent so far.
    """

    def __init__(self, exchange: Exchange) -> None:
        """Wrap the exchange among the machines."""
        self._exchange = exchange
        self.rank, self.size = exchange.rank, exchange.size
        self.run = self.num_rounds = self.num_sent = 0

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Exchange messages of the same run among all machines; see ``Exchange.exchange``.

        Raises:
            LeftRunError: other machines have begun a later run.
        """
        sent = [NOTHING if part == self.rank else self._headed(own) for part, own in enumerate(to)]
        while True:
            got = self._exchange.exchange(sent)
            self.num_rounds += 1
            self.num_sent += sum(map(size_of, sent))
            runs = [self.run if part == self.rank else int(own[: _RUN.itemsize].copy().view(_RUN)[0]) for part, own in enumerate(got)]
            if max(runs) > self.run:
                raise LeftRunError
            if min(runs) == self.run:
                return [own[_RUN.itemsize :] for own in got]
            # machines in an older run learn from this round that their run has ended, and exchange again

    def _headed(self, message: Message) -> Written:
        run = self.run

        def write(out: Array) -> None:
            out[: _RUN.itemsize] = np.array([run], _RUN).view(np.uint8)
            write_into(message, out[_RUN.itemsize :])

        return Written(_RUN.itemsize + size_of(message), write)
