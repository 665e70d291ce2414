"""What sampling needs of sampled edges, their sources and ids, for a loader whose graph is larger than memory: from files, or as it was handed over."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.feed.topology.entries import read_entries
from hoptrain.samplers.feed.topology.weighted import DrawsByWeight

SomeBatch = TypeVar("SomeBatch")
Asking: TypeAlias = Generator[tuple[str, Any], Array, SomeBatch]
"""Yields the name of an array (E,) of the graph and places (M,) there, and is sent its entries (M,); or "weights" and a ``HopByWeight``, and is sent
what ``DrawsByWeight`` says. It returns a batch."""


class EdgeReader:
    """What lies in files of a graph's edges, and answers questions about them.

    Attributes:
        files: by the names of the graph's arrays (E,).
        indptr: (V+1,) of the graph.
    """

    def __init__(self, files: Mapping[str, FileRows], indptr: Array) -> None:
        """Nothing is opened yet."""
        self.files: Mapping[str, FileRows] = files
        self.indptr: Array = indptr

    @cached_property
    def _draws(self) -> DrawsByWeight:
        return DrawsByWeight(self.indptr, self.files["weights"])

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgeReader, (self.files, self.indptr)

    def answers(self, name: str, asked: Sequence[Any]) -> list[Array]:
        """What is sent to some who ask alike, read together."""
        if name == "weights":
            return self._draws(asked)
        return np.split(read_entries(self.files[name], np.concatenate(asked)), np.cumsum([len(own) for own in asked])[:-1])


@dataclass(eq=False, slots=True, kw_only=True)
class EdgeSources:
    """Where a task's questions are answered.

    Attributes:
        reader: of the files.
        num_lists: how often a batch asks.
        shared: says which steps are ready; None where each batch reads its own.
        handed: the sources of steps that are.
        rank: number of this trainer among those that share them.
        patience_s: how long to wait for a step.
    """

    reader: EdgeReader
    num_lists: int
    shared: SharedRows | None = None
    handed: HandedSources | None = None
    rank: int = 0
    patience_s: float = 0.0

    def answer(self, asking: Asking[SomeBatch], run: int, step: int) -> SomeBatch:
        """The batch of a step that asks; in run 0, which is none, and without ``handed``, straight from the files."""
        if self.shared is None or self.handed is None or not run:
            return answered(asking, lambda name, asked: self.reader.answers(name, [asked])[0])
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        own = range(self.rank * self.num_lists, (self.rank + 1) * self.num_lists)
        entries = iter(self.handed.get(tag_of(run, step), own))
        return answered(asking, lambda name, asked: next(entries))


def answered(asking: Asking[SomeBatch], answer: Callable[[str, Any], Array]) -> SomeBatch:
    """The batch of what asks."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(*question))
    except StopIteration as end:
        batch: SomeBatch = end.value
        return batch
