"""Batches whose items the consumer gives, some steps ahead: what loaders of other libraries deal out by samplers of their own."""

from __future__ import annotations

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, shared_array

_HEADER, _ENTRY = 2, 3
"""The user's seed and the number of steps; then for each place where its items begin, for how many there is room, and how many there are."""


class GivenBatches:
    """In place of a ``Schedule``: the items of the steps that are under way, in a ring in memory that the workers see.

    ``begin`` comes before an epoch's first items, and ends the epoch before. A step has the place of the one ``num_places`` before it, whose
    batch was made. The memory grows with the largest batches, and not with the epoch.

    Attributes:
        rank: this rank.
        world_size: number of ranks.
    """

    def __init__(self, num_places: int, rank: int = 0, world_size: int = 1) -> None:
        """Make room for the items of ``num_places`` steps."""
        self.rank, self.world_size = rank, world_size
        self._num_places = num_places
        self._end = _HEADER + _ENTRY * num_places
        self._file = shared_array("hoptrain-plan", (max(self._end, SHARE_FROM_BYTES // 8),), np.int64)
        self._plan: Array = self._file

    def begin(self, seed: int, num_steps: int) -> None:
        """Begin an epoch at its user's seed. ``num_steps`` are those of each rank, by which the numbers of its batches stand apart."""
        self._plan[:_HEADER] = np.uint64(seed).view(np.int64), num_steps

    def give(self, step: int, items: Array) -> None:
        """The items (B,) of a step."""
        begin, room, _ = self._entry(step)
        if len(items) > room:
            begin, room = self._end, len(items) * 5 // 4
            self._end += room
        if self._end > len(self._plan):
            self._plan = np.memmap(str(self._file.filename), np.int64, "r+", shape=(2 * self._end,))
        self._entry(step)[:] = begin, room, len(items)
        np.copyto(self._plan[begin : begin + len(items)], items)

    @property
    def num_steps(self) -> int:
        """Steps of the epoch, as far as that was known when it began."""
        return int(self._plan[1])

    def batch_items(self, epoch: int, step: int) -> Array:
        """The items (B,) of a step that is under way."""
        begin, _, number = map(int, self._entry(step))
        if begin + number > len(self._plan):  # the consumer has made it longer
            self._plan = np.memmap(str(self._file.filename), np.int64, "r")
        return np.array(self._plan[begin : begin + number])

    def num_step_items(self, step: int) -> int:
        """How many items this rank has at a step."""
        return int(self._entry(step)[2])

    def address(self, epoch: int, step: int) -> Address:
        """The address of this rank's batch at a step."""
        return Address(int(self._plan[0].view(np.uint64)), epoch, self.rank * self.num_steps + step)

    def _entry(self, step: int) -> Array:
        begin = _HEADER + _ENTRY * (step % self._num_places)
        return self._plan[begin : begin + _ENTRY]
