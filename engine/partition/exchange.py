"""How machines exchange bytes, round by round: what an exchange is, and one among the threads of a process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError

NOTHING = np.empty(0, np.uint8)


class Exchange(Protocol):
    """One of ``size`` that exchange. All of them make the same rounds, in the same order.

    Attributes:
        rank: its number.
        size: how many there are.
    """

    rank: int
    size: int

    def exchange(self, to: Sequence[Array]) -> list[Array]:
        """Send ``to[p]`` (n,) uint8 to each p and return what each has sent to this one, by number. Nothing goes to itself.

        What came is good until the next round.

        Raises:
            InputError: another one has ended, or did not come in time.
        """
        ...


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

    def exchange(self, to: Sequence[Array]) -> list[Array]:
        """See ``Exchange``."""
        self._boxes[self.rank] = list(to)
        try:
            self._barrier.wait()
            got = [NOTHING if p == self.rank else self._boxes[p][self.rank].copy() for p in range(self.size)]
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise InputError("another machine has ended, or did not come in time: its messages tell why") from None
        return got

    def abort(self) -> None:
        """End all of them: whoever exchanges now, or ever after, hears that another one has ended."""
        self._barrier.abort()
