"""Transport of sampled batches from the process that samples for a machine to its workers, by message slots in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.batch.serialise import EdgeIds, PackedBatch, read


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class BatchReceiver:
    """A receiver of a rank's batches, which another process samples.

    Attributes:
        boxes: message slots of the rank, which steps use in turn.
        shared: the feature cache, whose ``ready`` tells which steps have been sent.
        rank: number of the rank among those of its machine.
        patience_s: seconds to wait for a step.
    """

    boxes: Sequence[SharedMessageSlot]
    shared: SharedRows
    rank: int
    patience_s: float

    def batch(self, run: int, step: int) -> tuple[PackedBatch, EdgeIds] | None:
        """Return the batch of a step, and the ids of its edges; None if the batch was not kept, so that the caller samples it.

        Raises:
            WorkerError: another run has begun, or the batch did not come within ``patience_s`` seconds.
            InputError: the batch was overwritten by the batch of another step.
        """
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        tag = tag_of(run, step)
        box = self.boxes[tag % len(self.boxes)]
        parts = box.get()[1]
        if box.number != tag:  # checked after reading, since the message may have been overwritten meanwhile
            raise InputError(f"the sample of step {step} was overwritten: its loader was iterated again; take a new iterator")
        return read(*parts) if parts else None


def put(boxes: Sequence[SharedMessageSlot], tag: int, message: Array | None) -> None:
    """Send a step's batch, serialised by ``written``, or an empty message (None) if the batch was not kept.

    The message overwrites the message of an earlier step. A process that is still reading the earlier message notices this by the slot's tag.
    """
    box = boxes[tag % len(boxes)]
    box.post(0)
    box.put(tag, [] if message is None else [message])


def message_slots(num_places: int, rank: int, ranks: Sequence[int], meeting: Meeting | None) -> list[list[SharedMessageSlot]]:
    """Return the message slots of each rank of this machine (``ranks``): the first rank creates them, and the other ranks attach to them."""
    own = [[SharedMessageSlot.make() for _ in range(num_places)] for _ in ranks] if rank == ranks[0] else []
    paths = [[box.path for box in boxes] for boxes in own]
    told = meeting.exchange("where its samples lie", paths)[ranks[0]] if meeting else paths
    return own or [[SharedMessageSlot(path) for path in boxes] for boxes in told]
