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

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.feed.topology.sources import read_sources
from hoptrain.samplers.scratch.workspace import Workspace

EDGE_BYTES = 64
"""Of an edge that is drawn with those of other steps: its place, its source, their order, and what a batch has of it."""


@dataclass(eq=False, kw_only=True)
class Superbatch:
    """Samples the steps to come, for the process that fills a cache (``hoptrain.engine.storage.filler.Topology``).

    Attributes:
        tasks: of the ranks.
        file: the graph's ``indices``.
        handed: where sources of steps in flight are handed to sampler processes.
        rows_in: of the batches of a step the distinct rows of each table.
        memory: bytes for the steps that are sampled together, and half as many for the sources of those that are not handed over yet.
    """

    tasks: Sequence[SampleTask]
    file: FileRows
    handed: HandedSources
    rows_in: Callable[[Sequence[Any]], list[Array]]
    memory: int
    _workspace: Workspace = field(default_factory=Workspace)
    _sampled: deque[list[Array]] = field(default_factory=deque)
    _waiting: deque[list[Array]] = field(default_factory=deque)
    _together: int = 1
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
            self._sample(list(islice(later, self._together)))
        return self._sampled.popleft() if self._sampled else None

    def hand_over(self, tag: int, landed: int) -> None:
        """Hand the sources of the next step over, whose rows were foreseen first."""
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
        sources: list[list[Array]] = [[] for _ in asking]
        batches: list[Any] = []
        places = [next(each) for each in asking]
        while not batches:
            found = self._read(places)
            for number, each in enumerate(asking):
                sources[number].append(found[number])
                try:
                    places[number] = each.send(found[number])
                except StopIteration as end:
                    batches.append(end.value)
        ranks = len(self.tasks)
        for first in range(0, len(asking), ranks):
            self._sampled.append(self.rows_in(batches[first : first + ranks]))
            self._waiting.append([own for lists in sources[first : first + ranks] for own in lists])
        largest = max((sum(len(own) for own in lists) for lists in self._waiting), default=0)
        self._together = max(1, min(2 * len(steps), self.memory // (EDGE_BYTES * max(1, largest))))

    def _read(self, places: list[Array]) -> list[Array]:
        """The sources of all of them, read together."""
        begin, before = time.perf_counter(), (self.file.num_reads, self.file.num_bytes)
        found = read_sources(self.file, np.concatenate(places))
        reads, num_bytes = self.file.num_reads - before[0], self.file.num_bytes - before[1]
        self._counts = self._counts.plus(Filled(num_reads=reads, num_bytes=num_bytes, read_s=time.perf_counter() - begin))
        return np.split(found, np.cumsum([len(own) for own in places])[:-1])
