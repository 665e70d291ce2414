"""The batches of many steps sampled together from a graph that lies in a file: for each hop the edges that any of them draws are read in the order of the file.

So a part of the file is read once for all of them, and not once for each. Every batch draws what it would draw alone, since its random numbers are addressed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.samplers.feed.task import BatchAndRows, SampleTask
from hoptrain.samplers.feed.topology.sources import EdgeReader
from hoptrain.samplers.scratch.workspace import Workspace

EDGE_BYTES = 64
"""Of an edge that is drawn with those of other steps: its place, its source, their order, and what a batch has of it."""


@dataclass(eq=False, kw_only=True)
class Superbatch:
    """Samples the steps to come, for the process that fills a cache (``hoptrain.engine.storage.filler.Topology``).

    Attributes:
        tasks: of the ranks.
        reader: of the files of the graph's edges.
        handed: where what they were told of steps in flight is handed to sampler processes.
        rows_in: of the batches of a step the distinct rows of each table.
        memory: bytes for the steps that are sampled together, and half as many for what is not handed over yet.
        num_together: steps that are sampled together next.
    """

    tasks: Sequence[SampleTask]
    reader: EdgeReader
    handed: HandedSources
    rows_in: Callable[[Sequence[BatchAndRows]], list[Array]]
    memory: int
    num_together: int = 1
    _workspace: Workspace = field(default_factory=Workspace)
    _sampled: deque[list[Array]] = field(default_factory=deque)
    _waiting: deque[list[Array]] = field(default_factory=deque)
    _counts: Filled = field(default_factory=Filled)

    @property
    def num_in_flight(self) -> int:
        """Steps that may be handed over at once."""
        return self.handed.num_steps

    @property
    def is_full(self) -> bool:
        """Whether no more steps should be foreseen for now."""
        return not self._sampled and 2 * sum(own.nbytes for lists in self._waiting for own in lists) >= self.memory

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """The rows of the next step, of each table; ``later`` are the epochs and steps to come, None behind the last one."""
        if not self._sampled:
            self._sample(list(islice(later, self.num_together)))
        return self._sampled.popleft() if self._sampled else None

    def hand_over(self, tag: int, landed: int) -> None:
        """Hand over what the next step asked for, whose rows were foreseen first."""
        self.handed.put(tag, self._waiting.popleft(), landed)

    def forget(self) -> None:
        """Other steps come than those foreseen."""
        self._sampled.clear()
        self._waiting.clear()

    def counted(self) -> Filled:
        """What reading took since the last call."""
        counts, self._counts = self._counts, Filled()
        return counts

    def _sample(self, steps: list[tuple[int, int]]) -> None:
        parts = [self._workspace.part(i, 0) for i in range(len(steps) * len(self.tasks))]
        asking = [
            task.asking(*at, part) for (at, task), part in zip(((at, task) for at in steps for task in self.tasks), parts, strict=True)
        ]
        told: list[list[Array]] = [[] for _ in asking]
        batches: list[BatchAndRows] = []
        questions = [next(each) for each in asking]
        while len(batches) < len(asking):
            found = self._read(questions[0][0], [asked for _, asked in questions])
            for number, each in enumerate(asking):
                told[number].append(found[number])
                try:
                    questions[number] = each.send(found[number])
                except StopIteration as end:
                    batches.append(end.value)
        ranks = len(self.tasks)
        for first in range(0, len(asking), ranks):
            self._sampled.append(self.rows_in(batches[first : first + ranks]))
            self._waiting.append([own for lists in told[first : first + ranks] for own in lists])
        largest = max((sum(len(own) for own in lists) for lists in self._waiting), default=0)
        self.num_together = max(1, min(2 * self.num_together, self.memory // (EDGE_BYTES * max(1, largest))))

    def _read(self, name: str, asked: list[Any]) -> list[Array]:
        """The answers to all of them."""
        file = self.reader.files[name]
        begin, before = time.perf_counter(), (file.num_reads, file.num_bytes)
        found = self.reader.answers(name, asked)
        reads, num_bytes = file.num_reads - before[0], file.num_bytes - before[1]
        self._counts = self._counts.plus(Filled(num_reads=reads, num_bytes=num_bytes, read_s=time.perf_counter() - begin))
        return found
