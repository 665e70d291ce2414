"""From the process that samples for a machine to those that make its ranks' batches: by memory without a name, a place for each step that is known ahead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hoptrain.engine import InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.folder import open_partition
from hoptrain.engine.partition.mailbox import Mailbox
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.partition.topology.columns import OwnColumns
from hoptrain.engine.partition.topology.graph import PartedGraph
from hoptrain.engine.placement.meeting import Meeting
from hoptrain.engine.queue.shared_memory import check_whole
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.parted.window import sample_window
from hoptrain.samplers.scratch.workspace import Workspace


@dataclass(eq=False, kw_only=True)
class SamplesAhead:
    """What the process does that samples for all ranks of a machine; it is a ``hoptrain.engine.storage.filler.Ahead``.

    Attributes:
        sampler: the same on all machines.
        columns: what this machine has of the graph.
        schedules: of this machine's ranks.
        boxes: of each rank a place for each of as many steps.
    """

    sampler: Any
    columns: OwnColumns
    schedules: Sequence[Schedule]
    boxes: Sequence[Sequence[Mailbox]]
    _rows: dict[tuple[int, int], Array] = field(default_factory=dict)
    _workspace: Workspace = field(default_factory=Workspace)

    @property
    def num_places(self) -> int:
        """Steps that are there at a time."""
        return len(self.boxes[0])

    def sample(self, run: int, epoch: int, steps: range, exchange: Exchange) -> None:
        """Sample some steps of an epoch together with the other machines; those of ``num_places`` before them are no longer needed."""
        check_whole(*self.columns.graph.arrays().values())
        asked = [(own.batch_items(epoch, step), own.address(epoch, step)) for step in steps for own in self.schedules]
        made = iter(sample_window(self.sampler, self.columns, asked, exchange, self._workspace))
        for step in steps:
            batches = [next(made) for _ in self.schedules]
            for boxes, batch in zip(self.boxes, batches, strict=True):
                boxes[step % self.num_places].put(tag_of(run, step), written(batch))
            self._rows[epoch, step] = np.unique(np.concatenate([batch.node_ids for batch in batches]))

    def __call__(self, epoch: int, step: int) -> list[Array]:
        """The distinct rows of the features that a sampled step uses, ascending; asked for once."""
        return [self._rows.pop((epoch, step))]

    def begin(self) -> None:
        """A run begins: nothing is sampled."""
        self._rows.clear()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Handed:
    """Where a rank's batches come from that ``SamplesAhead`` sampled.

    Attributes:
        boxes: the rank's places.
        shared: tells which steps are there.
        rank: number of the rank among those of its machine.
        patience_s: how long to wait for a step.
    """

    boxes: Sequence[Mailbox]
    shared: SharedRows
    rank: int
    patience_s: float

    def batch(self, run: int, step: int) -> MiniBatch:
        """The batch of a step, without its address.

        Raises:
            WorkerError: as ``SharedRows.wait_until_ready``.
            InputError: another step is at its place.
        """
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        box = self.boxes[step % len(self.boxes)]
        if box.number != tag_of(run, step):
            raise InputError(f"the sample of step {step} is not there any more: its loader was iterated anew; take a new iterator")
        return read(box.get()[1])


def own_columns_of(task: Any, rows: PartedRows | None) -> OwnColumns | None:
    """What this machine has of a task's graph that is parted; the task's graph becomes that, for rehearsals. None where all have the graph.

    Args:
        task: a ``SampleTask``.
        rows: its features, whose machines have met.
    """
    if rows is None or not isinstance(task.graph, PartedGraph):
        return None
    columns = open_partition(task.graph.path).columns(rows.machine)
    task.graph = columns.graph
    return columns


def boxes_of(num_places: int, rank: int, ranks: Sequence[int], meeting: Meeting | None) -> list[list[Mailbox]]:
    """Of each of ``ranks``, those of this machine, the places of its samples: the first one makes them, the others find them."""
    own = [[Mailbox.make() for _ in range(num_places)] for _ in ranks] if rank == ranks[0] else []
    paths = [[box.path for box in boxes] for boxes in own]
    told = meeting.exchange("where its samples lie", paths)[ranks[0]] if meeting else paths
    return own or [[Mailbox(path) for path in boxes] for boxes in told]


def written(batch: MiniBatch) -> list[Array]:
    """A batch's structure as parts (n,) uint8 of a message; ``read`` makes it again."""
    arrays = batch.arrays()
    head = {
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
        "num_src": [block.num_src for block in batch.blocks],
        "num_seeds": batch.num_seeds,
        "nested": batch.nested,
    }
    as_bytes = np.frombuffer(json.dumps(head).encode(), np.uint8)
    return [as_bytes, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values())]


def read(parts: Sequence[Array]) -> MiniBatch:
    """The batch of ``written``, whose arrays are views of the parts."""
    head = json.loads(parts[0].tobytes())
    arrays = {name: part.view(dtype).reshape(shape) for (name, dtype, shape), part in zip(head["arrays"], parts[1:], strict=True)}
    blocks = tuple(Block(indptr=None, indices=None, edge_ids=None, num_src=number) for number in head["num_src"])
    return MiniBatch(node_ids=None, blocks=blocks, num_seeds=head["num_seeds"], nested=head["nested"]).filled(arrays)
