"""The steps to come of a graph whose edges lie in files, sampled many together, and handed over as they are."""

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
"""Of an edge that is sampled with those of other steps: its place, its source, their order, and what a batch has of it."""


@dataclass(eq=False, kw_only=True)
class Superbatch:
    """Samples the steps to come, for the process that fills a cache (``hoptrain.engine.storage.filler.Topology``).

    Attributes:
        tasks: of the ranks.
        edges: the files.
        boxes: of each rank the places for the batches of steps in flight.
        rows_in: of the batches of a step the distinct rows of each table.
        memory: bytes for the steps that are sampled together, and half as many for what is not handed over yet.
        num_together: steps that are sampled together next.
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
        """Steps that may be handed over at once."""
        return len(self.boxes[0])

    @property
    def is_full(self) -> bool:
        """Whether no more steps should be foreseen for now."""
        return not self._sampled and 2 * sum(map(_num_bytes, self._waiting)) >= self.memory

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """The rows of the next step, of each table; ``later`` are the epochs and steps to come, None behind the last one."""
        if not self._sampled:
            self._sample(list(islice(later, self.num_together)))
        return self._sampled.popleft() if self._sampled else None

    def hand_over(self, tag: int, landed: int) -> None:
        """Hand over the next step, whose rows were foreseen first; of those up to ``landed``, all but the last ``num_in_flight``, nobody needs any more."""
        for boxes, message in zip(self.boxes, self._waiting.popleft(), strict=True):
            put(boxes, tag, message)

    def forget(self) -> None:
        """Other steps come than those foreseen."""
        self._sampled.clear()
        self._waiting.clear()

    def counted(self) -> Filled:
        """What reading took since the last call."""
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
