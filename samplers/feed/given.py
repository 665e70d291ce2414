"""Batches whose items the consumer gives, epoch by epoch: what loaders of other libraries deal out by samplers of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, shared_array

_HEADER = 2
"""The user's seed and the number of steps; then follow where each step's items begin, and the items."""


class GivenBatches:
    """In place of a ``Schedule``: the items of every step of the next epoch, in memory that the workers see.

    ``give`` comes before the epoch's first batch is asked for, and ends the epoch before.

    Attributes:
        rank: this rank.
        world_size: number of ranks.
    """

    def __init__(self, num_steps: int, num_items: int, rank: int = 0, world_size: int = 1) -> None:
        """Make room for epochs of up to ``num_steps`` steps with ``num_items`` items in all."""
        self.rank, self.world_size = rank, world_size
        self._most_steps = num_steps
        self._plan = shared_array("hoptrain-plan", (max(_HEADER + num_steps + 1 + num_items, SHARE_FROM_BYTES // 8),), np.int64)

    def give(self, seed: int, batches: Sequence[Array]) -> bool:
        """The items (B,) of every step, and the user's seed; False, and nothing done, where there is too little room."""
        ends = np.cumsum([len(items) for items in batches], dtype=np.int64)
        begin = _HEADER + self._most_steps + 1
        if len(batches) > self._most_steps or (len(ends) and begin + ends[-1] > len(self._plan)):
            return False
        self._plan[0], self._plan[1] = np.uint64(seed).view(np.int64), len(batches)
        self._plan[_HEADER : _HEADER + len(ends) + 1] = np.concatenate([[0], ends])
        if len(ends):
            np.concatenate(batches, out=self._plan[begin : begin + ends[-1]], casting="same_kind")
        return True

    @property
    def num_steps(self) -> int:
        """Steps of the epoch."""
        return int(self._plan[1])

    def batch_items(self, epoch: int, step: int) -> Array:
        """The items (B,) of a step."""
        begin, end = (int(place) + _HEADER + self._most_steps + 1 for place in self._plan[_HEADER + step : _HEADER + step + 2])
        return np.array(self._plan[begin:end])

    def num_step_items(self, step: int) -> int:
        """How many items this rank has at a step."""
        return len(self.batch_items(0, step))

    def address(self, epoch: int, step: int) -> Address:
        """The address of this rank's batch at a step."""
        return Address(int(self._plan[0].view(np.uint64)), epoch, self.rank * self.num_steps + step)
