"""``DistributedPrefetchSampler``: sampling of future steps for all ranks of a machine, together with other machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import tag_of
from hoptrain.samplers.batch.serialise import written
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.distributed.window import sample_window
from hoptrain.samplers.superbatch.transport import put


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

    num_in_flight: ClassVar[int] = IN_FLIGHT
    is_full: ClassVar[bool] = False

    @property
    def num_places(self) -> int:
        """Number of steps whose samples are kept at the same time."""
        return len(self.boxes[0])

    def sample(self, run: int, epoch: int, steps: range, exchange: Exchange) -> None:
        """Sample some steps of an epoch together with the other machines; each overwrites the sample of the step ``num_places`` earlier."""
        check_whole(mapped_files(*self.columns.graph.arrays().values()))
        asked = [(own.batch_items(epoch, step), own.address(epoch, step)) for step in steps for own in self.schedules]
        window = sample_window(self.sampler, self.columns, asked, exchange, self._workspace)
        made = iter(
            [
                batch.at(address).out_of(self.columns.graph, self.sampler.repeats_edges)
                for batch, (_, address) in zip(window, asked, strict=True)
            ]
        )
        for step in steps:
            batches = [next(made) for _ in self.schedules]
            for boxes, batch in zip(self.boxes, batches, strict=True):
                put(boxes, tag_of(run, step), written(batch))
            self._rows[epoch, step] = np.unique(np.concatenate([batch.node_ids for batch in batches]))

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """Return the distinct feature rows, ascending, of the next step of ``later``, which is already sampled; None after the last step."""
        return next(([self._rows.pop(at)] for at in later), None)

    def publish(self, tag: int, landed: int) -> None:
        """Do nothing, since ``sample`` has already passed the batches to the workers."""

    def forget(self) -> None:
        """Drop the rows of all sampled steps, since another run begins."""
        self._rows.clear()

    def counted(self) -> Filled:
        """Return counts of zero, since nothing is read from files."""
        return Filled()


def own_columns_of(task: Any, rows: PartitionedFeatures | None) -> OwnColumns | None:
    """Return this machine's partition of a task's graph, on which the task estimates the size of a batch; None if the graph is not partitioned.

    Args:
        task: a ``SampleTask``.
        rows: its partitioned features, whose machines are known to one another.
    """
    if rows is None or not isinstance(task.graph, PartitionedGraph):
        return None
    columns = open_partition(task.graph.path).columns(rows.machine)
    task.graph = columns.graph
    return columns
