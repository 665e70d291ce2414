"""From the process that samples for a machine to those that make its ranks' batches: by memory without a name, places for steps that each is used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.samplers.batch.serialise import EdgeIds, read


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Handed:
    """Where a rank's batches come from that another process sampled.

    Attributes:
        boxes: the rank's places.
        shared: tells which steps are there.
        rank: number of the rank among those of its machine.
        patience_s: how long to wait for a step.
    """

    boxes: Sequence[SharedMessageSlot]
    shared: SharedRows
    rank: int
    patience_s: float

    def batch(self, run: int, step: int) -> tuple[SampledBatch, EdgeIds]:
        """The batch of a step, without its address.

        Raises:
            WorkerError: as ``SharedRows.wait_until_ready``.
            InputError: another step is at its place.
        """
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        tag = tag_of(run, step)
        box = self.boxes[tag % len(self.boxes)]
        parts = box.get()[1]
        if box.number != tag:  # now, since it may have been overwritten meanwhile
            raise InputError(f"the sample of step {step} is not there any more: its loader was iterated anew; take a new iterator")
        return read(parts)


def put(boxes: Sequence[SharedMessageSlot], tag: int, message: Sequence[Array]) -> None:
    """Hand over what ``written`` made of a step's batch, in the place of a step that nobody asks for any more: who still reads that one is told."""
    box = boxes[tag % len(boxes)]
    box.put(0, [])
    box.put(tag, message)


def boxes_of(num_places: int, rank: int, ranks: Sequence[int], meeting: Meeting | None) -> list[list[SharedMessageSlot]]:
    """Of each of ``ranks``, those of this machine, the places of its samples: the first one makes them, the others find them."""
    own = [[SharedMessageSlot.make() for _ in range(num_places)] for _ in ranks] if rank == ranks[0] else []
    paths = [[box.path for box in boxes] for boxes in own]
    told = meeting.exchange("where its samples lie", paths)[ranks[0]] if meeting else paths
    return own or [[SharedMessageSlot(path) for path in boxes] for boxes in told]
