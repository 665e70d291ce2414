"""``Superbatch``: samples many future steps together from edges in files, and passes their batches to the workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.filler import Filled
from hoptrain.samplers.batch.serialise import written
from hoptrain.samplers.loader.task import BatchAndRows, SampleTask
from hoptrain.samplers.loader.topology.edges import EdgeFiles
from hoptrain.samplers.superbatch.handover import put

EDGE_BYTES = 64
"""Approximate bytes of an edge while several steps are sampled together: position, source, their sort order, and its entries in the batch."""


@dataclass(eq=False, kw_only=True)
class Superbatch:
    """A ``hoptrain.engine.storage.filler.Topology`` that samples future steps for the process that fills the feature cache.

    Attributes:
        tasks: the tasks of the ranks.
        edges: the files of the edges.
        boxes: for each rank the message slots for batches of steps in flight.
        rows_in: returns the distinct rows of each table that the batches of a step use.
        memory: bytes for the steps that are sampled together; batches that wait for the workers have half as many.
        num_together: number of steps that are sampled together next.
    """

    tasks: Sequence[SampleTask]
    edges: EdgeFiles
    boxes: Sequence[Sequence[SharedMessageSlot]]
    rows_in: Callable[[Sequence[BatchAndRows]], list[Array]]
    memory: int
    num_together: int = 1
    _sampled: deque[list[Array]] = field(default_factory=deque)
    _waiting: deque[list[list[Array]]] = field(default_factory=deque)
    _counted: Filled = field(default_factory=Filled)

    @property
    def num_in_flight(self) -> int:
        """Number of steps that may be with the workers at once."""
        return len(self.boxes[0])

    @property
    def is_full(self) -> bool:
        """True if no more steps should be sampled for now."""
        return not self._sampled and 2 * sum(map(_num_bytes, self._waiting)) >= self.memory

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """Return the rows of the next step for each table, or None after the last step; ``later`` yields epoch and step of those that follow."""
        if not self._sampled:
            self._sample(list(islice(later, self.num_together)))
        return self._sampled.popleft() if self._sampled else None

    def publish(self, tag: int, landed: int) -> None:
        """Pass the next step to the workers. Steps up to ``landed`` have been taken, so their message slots can be reused."""
        for boxes, message in zip(self.boxes, self._waiting.popleft(), strict=True):
            put(boxes, tag, message)

    def forget(self) -> None:
        """Drop all sampled steps, since others follow."""
        self._sampled.clear()
        self._waiting.clear()

    def counted(self) -> Filled:
        """Return counts and times of reads since the last call."""
        files, before = self.edges.files.values(), self._counted
        reads, num_bytes = (sum(getattr(file, name) for file in files) for name in ("num_reads", "num_bytes"))
        self._counted = Filled(num_reads=reads, num_bytes=num_bytes, read_s=self.edges.read_s)
        return self._counted.minus(before)

    def _sample(self, steps: list[tuple[int, int]]) -> None:
        asked = [(task, (task.schedule.batch_items(*at), task.schedule.address(*at))) for at in steps for task in self.tasks]
        made: list[Any] = self.edges.batches(self.tasks[0].sampler, [each for _, each in asked])
        largest, ranks = 1, len(self.tasks)
        for first in range(0, len(made), ranks):
            own = made[first : first + ranks]
            self._sampled.append(
                self.rows_in([(batch, task.rows_of(batch, ids)) for task, (batch, ids) in zip(self.tasks, own, strict=True)])
            )
            self._waiting.append([written(batch, ids) for batch, ids in own])
            largest = max(largest, sum(batch.num_edges for batch, _ in own))
        self.num_together = max(1, min(2 * self.num_together, self.memory // (EDGE_BYTES * largest)))


def _num_bytes(messages: Sequence[Sequence[Array]]) -> int:
    return sum(part.nbytes for message in messages for part in message)
