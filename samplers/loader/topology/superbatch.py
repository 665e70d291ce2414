"""Sampling of future steps for the process that fills the feature cache: ``StepAccesses`` for graphs in memory, ``Superbatch`` for edges in files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.samplers.batch.serialise import written
from hoptrain.samplers.loader.task import BatchAndRows, SampleTask
from hoptrain.samplers.loader.topology.edges import EdgeFiles
from hoptrain.samplers.superbatch.transport import put

EDGE_BYTES = 64
"""Approximate bytes per edge while several steps are sampled together: position, source, their sort order, and entries in the batch."""


@dataclass(eq=False, kw_only=True)
class StepAccesses:
    """A ``hoptrain.engine.storage.filler.StepSampler`` for a graph in memory. It passes its batches to the workers if there is memory for them.

    Attributes:
        tasks: the tasks of the ranks that share a cache, each with its own workspace; their stores are indices of tables.
        num_tables: number of tables.
        boxes: for each rank, the message slots for batches of steps in flight; without them, all batches are dropped.
        memory: bytes for batches that are kept, including message slots. Batches that do not fit are dropped, and workers sample them again.
    """

    tasks: Sequence[SampleTask]
    num_tables: int
    boxes: Sequence[Sequence[SharedMessageSlot]] = ()
    memory: int = 0
    _rows: deque[list[Array]] = field(default_factory=deque)
    _waiting: deque[Sequence[Array | None]] = field(default_factory=deque)
    _num_bytes: int = 0

    def __call__(self, epoch: int, step: int) -> list[Array]:
        """Return the distinct rows (B,) of each table that a step uses, ascending."""
        return self.in_batches([task.with_rows(epoch, step) for task in self.tasks])

    def in_batches(self, batches: Iterable[BatchAndRows]) -> list[Array]:
        """Return the distinct rows (B,) of each table that the given batches use, ascending."""
        found: list[list[Array]] = [[] for _ in range(self.num_tables)]
        for _, rows in batches:
            for _, table, ids in rows:
                found[table].append(ids)
        return [_distinct(np.concatenate(ids)) if ids else np.empty(0, np.int32) for ids in found]

    @property
    def num_in_flight(self) -> int:
        """Maximum number of steps that workers have at the same time."""
        return len(self.boxes[0]) if self.boxes else IN_FLIGHT

    @property
    def is_full(self) -> bool:
        """Always False: if memory is full, batches are dropped, but the rows of further steps can be planned."""
        return False

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """Return the rows of the next step for each table, or None after the last step; ``later`` yields epoch and step of each step that follows."""
        if not self._rows:
            self._sample(later)
        return self._rows.popleft() if self._rows else None

    def publish(self, tag: int, landed: int) -> None:
        """Pass the next step to the workers. Steps up to ``landed`` have been taken, so their message slots can be reused."""
        messages = self._waiting.popleft()
        self._num_bytes -= _size(messages)
        for boxes, message in zip(self.boxes, messages, strict=True):
            put(boxes, tag, message)

    def forget(self) -> None:
        """Drop all sampled steps, since another run begins."""
        self._rows.clear()
        self._waiting.clear()
        self._num_bytes = 0

    def counted(self) -> Filled:
        """Return counts and times of reads since the last call."""
        return Filled()

    def _sample(self, later: Iterator[tuple[int, int]]) -> None:
        for at in islice(later, 1):
            batches = [task.with_rows(*at) for task in self.tasks]
            self._rows.append(self.in_batches(batches))
            # each message slot grows to the size of the largest batch
            size = sum(array.nbytes for batch, _ in batches for array in batch.arrays().values())
            is_kept = self._num_bytes + (1 + self.num_in_flight) * size <= self.memory
            self._wait([written(batch) if is_kept else None for batch, _ in batches])

    def _wait(self, messages: Sequence[Array | None]) -> None:
        """Keep the messages with the batches of a step until they are passed to the workers."""
        self._waiting.append(messages)
        self._num_bytes += _size(messages)


@dataclass(eq=False, kw_only=True)
class Superbatch(StepAccesses):
    """A sampler of future steps that samples many of them together from edges in files. It keeps all batches, and stops sampling while memory is full.

    Attributes:
        edges: the files of the edges.
        memory: bytes for the steps that are sampled together; waiting batches may take half of this number in addition.
        num_together: number of steps that are sampled together next.
    """

    edges: EdgeFiles
    num_together: int = 1
    _counted: Filled = field(default_factory=Filled)

    @property
    def is_full(self) -> bool:
        """True if no more steps should be sampled for now."""
        return not self._rows and 2 * self._num_bytes >= self.memory

    def counted(self) -> Filled:
        """Return counts and times of reads since the last call."""
        files, before = self.edges.files.values(), self._counted
        reads, num_bytes = (sum(getattr(file, name) for file in files) for name in ("num_reads", "num_bytes"))
        self._counted = Filled(num_reads=reads, num_bytes=num_bytes, read_s=self.edges.read_s)
        return self._counted.minus(before)

    def _sample(self, later: Iterator[tuple[int, int]]) -> None:
        steps = list(islice(later, self.num_together))
        asked = [(task, (task.schedule.batch_items(*at), task.schedule.address(*at))) for at in steps for task in self.tasks]
        made: list[Any] = self.edges.batches(self.tasks[0].sampler, [each for _, each in asked])
        largest, ranks = 1, len(self.tasks)
        for first in range(0, len(made), ranks):
            own = made[first : first + ranks]
            self._rows.append(
                self.in_batches([(batch, task.rows_of(batch, ids)) for task, (batch, ids) in zip(self.tasks, own, strict=True)])
            )
            self._wait([written(batch, ids) for batch, ids in own])
            largest = max(largest, sum(batch.num_edges for batch, _ in own))
        self.num_together = max(1, min(2 * self.num_together, self.memory // (EDGE_BYTES * largest)))


def step_accesses(tasks: Sequence[SampleTask], num_tables: int, boxes: Sequence[Sequence[SharedMessageSlot]], memory: int) -> StepAccesses:
    """Return the sampler of future steps for the ``tasks`` of all ranks of a machine: a ``Superbatch`` if edges are read from files, else ``StepAccesses``."""
    if (edges := tasks[0].edges) is None:
        return StepAccesses(tasks=tasks, num_tables=num_tables, boxes=boxes, memory=memory)
    return Superbatch(tasks=tasks, num_tables=num_tables, boxes=boxes, memory=memory // 2, edges=edges)


def _size(messages: Sequence[Array | None]) -> int:
    return sum(message.nbytes for message in messages if message is not None)


def _distinct(ids: Array) -> Array:
    ids.sort()
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])] if len(ids) else ids
