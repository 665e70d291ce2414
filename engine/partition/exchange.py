"""How machines exchange bytes, round by round: what an exchange is, and one among the threads of a process."""

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
    """One of ``size`` that exchange. All of them make the same rounds, in the same order.

    Attributes:
        rank: its number.
        size: how many there are.
    """

    rank: int
    size: int

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Send ``to[p]`` to each p and return what each has sent to this one, (n,) uint8, by number. Nothing goes to itself.

        What came is good until the next round.

        Raises:
            InputError: another one has ended, or did not come in time.
        """
        ...


class Swap(Protocol):
    """An exchange from memory into memory, as a carrier makes it."""

    def swap(self, sent: Array, sizes: Sequence[int], room: Callable[[Sequence[int]], Array]) -> list[int]:
        """Send ``sizes[p]`` bytes to each p and return how many each has sent to this one.

        Args:
            sent: (n,) uint8, what is sent, one behind another.
            sizes: of what is sent.
            room: gives (m,) uint8, where what comes goes, one behind another, of these sizes.

        Raises:
            InputError: as ``Exchange``.
        """
        ...


def exchange_by(own: Swap, to: Sequence[Message]) -> list[Array]:
    """An ``Exchange.exchange`` by a ``Swap``, from and into new memory."""
    sizes = list(map(size_of, to))
    sent, found = np.empty(sum(sizes), np.uint8), list[Array]()
    for message, out in zip(to, split(sent, sizes), strict=True):
        write_into(message, out)

    def room(sizes: Sequence[int]) -> Array:
        found.append(np.empty(sum(sizes), np.uint8))
        return found[0]

    came = own.swap(sent, sizes, room)
    return split(found[0], came)


class LocalExchange:
    """One of several threads of this process that exchange; see ``Exchange``."""

    def __init__(self, rank: int, boxes: list[list[Array]], barrier: threading.Barrier) -> None:
        """Take what all of them share: ``exchanges`` makes it."""
        self.rank, self.size = rank, len(boxes)
        self._boxes, self._barrier = boxes, barrier

    @classmethod
    def among(cls, size: int, patience_s: float = 60.0) -> list[LocalExchange]:
        """As many as ``size``, which wait ``patience_s`` seconds for one another."""
        boxes: list[list[Array]] = [[] for _ in range(size)]
        barrier = threading.Barrier(size, timeout=patience_s)
        return [cls(rank, boxes, barrier) for rank in range(size)]

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """See ``Exchange``."""
        return exchange_by(self, to)

    def swap(self, sent: Array, sizes: Sequence[int], room: Callable[[Sequence[int]], Array]) -> list[int]:
        """See ``Swap``."""
        self._boxes[self.rank] = split(sent, sizes)
        try:
            self._barrier.wait()
            got = [NOTHING if p == self.rank else self._boxes[p][self.rank] for p in range(self.size)]
            came = list(map(len, got))
            for out, message in zip(split(room(came), came), got, strict=True):
                out[...] = message
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise InputError("another machine has ended, or did not come in time: its messages tell why") from None
        return came

    def abort(self) -> None:
        """End all of them: whoever exchanges now, or ever after, hears that another one has ended."""
        self._barrier.abort()
