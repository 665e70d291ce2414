"""Rounds of a run: where machines leave a run early, none of them takes part in a round of another's run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import NOTHING, Exchange
from hoptrain.engine.queue.message_slot import Message, Written, size_of, write_into

_RUN = np.dtype(np.int64)


class LeftRunError(Exception):
    """Other machines are in a later run: this one was left."""


class RunExchange:
    """An ``Exchange`` whose messages begin with the number of the run.

    Attributes:
        rank: of this machine.
        size: machines.
        run: number of the run, the same on all machines.
        num_rounds: rounds so far.
        num_sent: bytes that were sent in them.
    """

    def __init__(self, exchange: Exchange) -> None:
        """Take the machines' exchange."""
        self._exchange = exchange
        self.rank, self.size = exchange.rank, exchange.size
        self.run = self.num_rounds = self.num_sent = 0

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """See ``Exchange``.

        Raises:
            LeftRunError: others are in a later run.
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
            # those behind learn by this round that their run was left, and come anew

    def _headed(self, message: Message) -> Written:
        run = self.run

        def write(out: Array) -> None:
            out[: _RUN.itemsize] = np.array([run], _RUN).view(np.uint8)
            write_into(message, out[_RUN.itemsize :])

        return Written(_RUN.itemsize + size_of(message), write)
