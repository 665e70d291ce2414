"""What the process does that samples for all ranks of a machine, together with other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.folder import open_partition
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.partition.topology.columns import OwnColumns
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.queue.shared_memory import check_whole, mapped_files
from hoptrain.engine.schedule import StepSchedule
from hoptrain.engine.storage.shared_rows import tag_of
from hoptrain.samplers.batch.serialise import written
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.distributed.window import sample_window
from hoptrain.samplers.superbatch.handover import put


@dataclass(eq=False, kw_only=True)
class SamplesAhead:
    """What the process does that samples for all ranks of a machine; it is a ``hoptrain.engine.partition.fill.Ahead``.

    Attributes:
        sampler: the same on all machines.
        columns: what this machine has of the graph.
        schedules: of this machine's ranks.
        boxes: of each rank a place for each of as many steps.
    """

    sampler: Any
    columns: OwnColumns
    schedules: Sequence[StepSchedule]
    boxes: Sequence[Sequence[SharedMessageSlot]]
    _rows: dict[tuple[int, int], Array] = field(default_factory=dict)
    _workspace: Workspace = field(default_factory=Workspace)

    @property
    def num_places(self) -> int:
        """Steps that are there at a time."""
        return len(self.boxes[0])

    def sample(self, run: int, epoch: int, steps: range, exchange: Exchange) -> None:
        """Sample some steps of an epoch together with the other machines; those of ``num_places`` before them are no longer needed."""
        check_whole(mapped_files(*self.columns.graph.arrays().values()))
        asked = [(own.batch_items(epoch, step), own.address(epoch, step)) for step in steps for own in self.schedules]
        made = iter(sample_window(self.sampler, self.columns, asked, exchange, self._workspace))
        for step in steps:
            batches = [next(made) for _ in self.schedules]
            for boxes, batch in zip(self.boxes, batches, strict=True):
                put(boxes, tag_of(run, step), written(batch))
            self._rows[epoch, step] = np.unique(np.concatenate([batch.node_ids for batch in batches]))

    def __call__(self, epoch: int, step: int) -> list[Array]:
        """The distinct rows of the features that a sampled step uses, ascending; asked for once."""
        return [self._rows.pop((epoch, step))]

    def begin(self) -> None:
        """A run begins: nothing is sampled."""
        self._rows.clear()


def own_columns_of(task: Any, rows: PartitionedFeatures | None) -> OwnColumns | None:
    """What this machine has of a task's graph that is parted; the task's graph becomes that, for rehearsals. None where all have the graph.

    Args:
        task: a ``SampleTask``.
        rows: its features, whose machines have met.
    """
    if rows is None or not isinstance(task.graph, PartitionedGraph):
        return None
    columns = open_partition(task.graph.path).columns(rows.machine)
    task.graph = columns.graph
    return columns
