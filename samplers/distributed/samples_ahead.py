"""``DistributedPrefetchSampler``: sampling of future steps for all ranks of a machine, together with other machines."""

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
class DistributedPrefetchSampler:
    """A ``hoptrain.engine.partition.fill.PrefetchSampler`` that samples future steps for all ranks of a machine.

    Attributes:
        sampler: the sampler, equal on all machines.
        columns: this machine's partition of the graph.
        schedules: schedules of this machine's ranks.
        boxes: for each rank its message slots, which steps use in turn.
    """

    sampler: Any
    columns: OwnColumns
    schedules: Sequence[StepSchedule]
    boxes: Sequence[Sequence[SharedMessageSlot]]
    _rows: dict[tuple[int, int], Array] = field(default_factory=dict)
    _workspace: Workspace = field(default_factory=Workspace)

    @property
    def num_places(self) -> int:
        """Number of steps whose samples are kept at a time."""
        return len(self.boxes[0])

    def sample(self, run: int, epoch: int, steps: range, exchange: Exchange) -> None:
        """Sample some steps of an epoch together with the other machines; they overwrite the samples of ``num_places`` steps before."""
        check_whole(mapped_files(*self.columns.graph.arrays().values()))
        asked = [(own.batch_items(epoch, step), own.address(epoch, step)) for step in steps for own in self.schedules]
        made = iter(sample_window(self.sampler, self.columns, asked, exchange, self._workspace))
        for step in steps:
            batches = [next(made) for _ in self.schedules]
            for boxes, batch in zip(self.boxes, batches, strict=True):
                put(boxes, tag_of(run, step), written(batch))
            self._rows[epoch, step] = np.unique(np.concatenate([batch.node_ids for batch in batches]))

    def __call__(self, epoch: int, step: int) -> list[Array]:
        """Return the distinct feature rows that a sampled step uses, ascending; each step can be requested once."""
        return [self._rows.pop((epoch, step))]

    def begin(self) -> None:
        """Drop all samples when a new iteration over the loader begins."""
        self._rows.clear()


def own_columns_of(task: Any, rows: PartitionedFeatures | None) -> OwnColumns | None:
    """Return this machine's partition of a task's graph, which becomes the graph of the task for rehearsals; None if the graph is not partitioned.

    Args:
        task: a ``SampleTask``.
        rows: its partitioned features, whose machines are known to one another.
    """
    if rows is None or not isinstance(task.graph, PartitionedGraph):
        return None
    columns = open_partition(task.graph.path).columns(rows.machine)
    task.graph = columns.graph
    return columns
