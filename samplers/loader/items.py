"""One step of a feed of items that stand alone: nothing is sampled, rows are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.schedule import StepSchedule


@dataclass(frozen=True, eq=False, slots=True)
class ItemTask:
    """What a worker does: it is a ``hoptrain.engine.queue.worker.Task``.

    Attributes:
        join: item numbers (B,) to the arrays of their batch, by name; a bound method of the data, whose large arrays are shared.
        schedule: what is in which batch.
    """

    join: Callable[[Array], dict[str, Array]]
    schedule: StepSchedule

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> None:
        """Make the batch of a step in arrays from ``allocate``."""
        made = self.join(self.schedule.batch_items(epoch, step))
        out = allocate([(name, array.dtype, array.shape) for name, array in made.items()])
        for name, array in made.items():
            out[name][...] = array

    def num_bytes(self, epoch: int) -> int:
        """Size of an epoch's first batch."""
        return sum(array.nbytes for array in self.join(self.schedule.batch_items(epoch, 0)).values())
