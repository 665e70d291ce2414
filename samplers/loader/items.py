"""The worker task of loaders without sampling, whose batches consist of independent items such as images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.schedule import StepSchedule


@dataclass(frozen=True, eq=False, slots=True)
class ItemTask:
    """A ``hoptrain.engine.queue.worker.Task`` that collates the items of a batch.

    Attributes:
        join: function from item numbers (B,) to the batch's arrays by name. It is a bound method of the data set, whose large arrays are shared.
        schedule: the schedule that determines the items of each batch.
    """

    join: Callable[[Array], dict[str, Array]]
    schedule: StepSchedule

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> None:
        """Make the batch of a step in arrays from ``allocate``."""
        made = self.join(self.schedule.batch_items(epoch, step))
        out = allocate([(name, array.dtype, array.shape) for name, array in made.items()])
        for name, array in made.items():
            out[name][...] = array

    def rehearse(self, epoch: int) -> int:
        """Make the first batch of an epoch and return its size in bytes."""
        return sum(array.nbytes for array in self.join(self.schedule.batch_items(epoch, 0)).values())
