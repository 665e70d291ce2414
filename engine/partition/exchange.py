"""The interface by which machines exchange bytes in rounds, and an implementation among threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.message_slot import Message, size_of, split, write_into

NOTHING = np.empty(0, np.uint8)


class Exchange(Protocol):
    """A participant in an exchange of bytes. All participants call the same rounds, in the same order.

    Attributes:
        rank: index of this participant.
        size: number of participants.
    """

    rank: int
    size: int

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Send ``to[p]`` to each other participant p, and return the messages that this participant received, (n,) uint8, by index of the sender.

        The returned arrays are valid until the next round.

        Raises:
            InputError: another participant has ended or did not call in time.
        """
        ...


class Swap(Protocol):
    """An exchange between memory buffers of the caller, for the communication process."""

    def swap(self, sent: Array, sizes: Sequence[int], reserve: Callable[[Sequence[int]], Array]) -> list[int]:
        """Send ``sizes[p]`` bytes to each participant p. Return the number of bytes that each participant has sent to this one.

        Args:
            sent: (n,) uint8, the concatenated messages.
            sizes: sizes of the messages in bytes.
            reserve: function that returns the receive buffer (m,) uint8 for concatenated messages of the given sizes.

        Raises:
            InputError: another participant has ended or did not call in time.
        """
        ...


def exchange_by(own: Swap, to: Sequence[Message]) -> list[Array]:
    """Implement ``Exchange.exchange`` by a ``Swap`` with newly allocated buffers."""
    sizes = list(map(size_of, to))
    sent, found = np.empty(sum(sizes), np.uint8), list[Array]()
    for message, out in zip(to, split(sent, sizes), strict=True):
        write_into(message, out)

    def reserve(sizes: Sequence[int]) -> Array:
        found.append(np.empty(sum(sizes), np.uint8))
        return found[0]

    came = own.swap(sent, sizes, reserve)
    return split(found[0], came)


class LocalExchange:
    """An ``Exchange`` among several threads of this process."""

    def __init__(self, rank: int, boxes: list[list[Array]], barrier: threading.Barrier) -> None:
        """Store the shared state; use ``among`` to create all participants."""
        self.rank, self.size = rank, len(boxes)
        self._boxes, self._barrier = boxes, barrier

    @classmethod
    def among(cls, size: int, patience_s: float = 60.0) -> list[LocalExchange]:
        """Return ``size`` participants that wait up to ``patience_s`` seconds for each other."""
        boxes: list[list[Array]] = [[] for _ in range(size)]
        barrier = threading.Barrier(size, timeout=patience_s)
        return [cls(rank, boxes, barrier) for rank in range(size)]

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Exchange messages; see ``Exchange.exchange``."""
        return exchange_by(self, to)

    def swap(self, sent: Array, sizes: Sequence[int], reserve: Callable[[Sequence[int]], Array]) -> list[int]:
        """Exchange buffers; see ``Swap.swap``."""
        self._boxes[self.rank] = split(sent, sizes)
        try:
            self._barrier.wait()
            got = [NOTHING if p == self.rank else self._boxes[p][self.rank] for p in range(self.size)]
            came = list(map(len, got))
            for out, message in zip(split(reserve(came), came), got, strict=True):
                out[...] = message
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise InputError("another machine has ended, or did not respond in time: its own output has the reason") from None
        return came

    def abort(self) -> None:
        """Abort the exchange: all current and later calls raise InputError."""
        self._barrier.abort()
