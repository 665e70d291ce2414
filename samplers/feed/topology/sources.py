"""The sources of sampled edges, for a loader whose graph is larger than memory: from the file, or as they were handed over."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of

SomeBatch = TypeVar("SomeBatch")


@dataclass(eq=False, slots=True, kw_only=True)
class EdgeSources:
    """The graph's ``indices`` (E,) in a file.

    Attributes:
        file: the file.
        num_hops: of the sampler.
        shared: says which steps are ready; None where each batch reads its own.
        handed: the sources of steps that are.
        rank: number of this trainer among those that share them.
        patience_s: how long to wait for a step.
    """

    file: FileRows
    num_hops: int
    shared: SharedRows | None = None
    handed: HandedSources | None = None
    rank: int = 0
    patience_s: float = 0.0

    def answer(self, asking: Generator[Array, Array, SomeBatch], run: int, step: int) -> SomeBatch:
        """The batch of a step whose sampler asks for its sources; in run 0, which is none, and without ``handed``, straight from the file."""
        if self.shared is None or self.handed is None or not run:
            return answered(asking, lambda places: read_sources(self.file, places))
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        hops = range(self.rank * self.num_hops, (self.rank + 1) * self.num_hops)
        sources = iter(self.handed.get(tag_of(run, step), hops))
        return answered(asking, lambda places: next(sources))


def answered(asking: Generator[Array, Array, SomeBatch], sources_of: Callable[[Array], Array]) -> SomeBatch:
    """The batch of a sampler that asks for the sources (M,) of places (M,)."""
    try:
        places = next(asking)
        while True:
            places = asking.send(sources_of(places))
    except StopIteration as end:
        batch: SomeBatch = end.value
        return batch


def read_sources(file: FileRows, places: Array) -> Array:
    """The entries (M,) of a file at ``places`` (M,), which may repeat: in the order of the file, many at once."""
    order = np.argsort(places)
    found = np.empty(len(places), file.dtype)
    file.read(places[order].astype(np.int64, copy=False), order, found.view(np.uint8).reshape(len(places), file.row_bytes))
    return found
