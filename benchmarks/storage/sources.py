"""Sources of feature rows that are compared with the loader's cache: memory, a memory map of the file, and caches with other policies.

A source replaces the features of a task (``SampleTask.stores``) and opens the file in the process that makes the batches. Except for the memory map, sources
bypass the page cache.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.storage.policies import Fixed, Policy
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import codes_of
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import Workspace
from hoptrain.samplers.loader.feature_cache import CachedFeatures
from hoptrain.samplers.loader.gather import gather_rows


def features_of(data: Dataset) -> FileRows:
    """Return the file of a data set's features.

    Raises:
        InputError: the data set has no features, or they are not in a file.
    """
    if data.x is None:
        raise InputError(f"{data.name} has no features: this benchmark reads features from a disk; choose another data set")
    return FileRows.of(codes_of(data.x), "features")


def join(group: Path) -> None:
    """Move this process to a control group. Memory that it allocates and maps from now on counts towards the group's limit."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


@dataclass(eq=False, kw_only=True)
class Source:
    """A source of the rows of a table (V, F) in a file.

    Attributes:
        file: the file.
        group: a control group that the process joins before the first batch of a run, or None.
    """

    file: FileRows
    group: Path | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored features."""
        return self.file.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table, (V, F)."""
        return self.file.shape

    def gather(self, ids: Array, out: Array, run: int, step: int, workspace: Workspace) -> None:
        """Gather rows: ``out[i] = table[ids[i]]``. In run 0, which only determines the size of a batch, rows are read directly from the file."""
        if run:
            self._joined  # noqa: B018 - joins the group at the first access
            self.rows(ids, out, workspace)
        else:
            CachedFeatures(file=self.file).gather(ids, out, run, step, workspace)

    def rows(self, ids: Array, out: Array, workspace: Workspace) -> None:
        """Gather rows of the mapped table into ``out``."""
        gather_rows(self._table, ids, out, workspace)

    @cached_property
    def _joined(self) -> None:
        if self.group is not None:
            join(self.group)

    @cached_property
    def _table(self) -> Array:
        raise NotImplementedError


class InMemory(Source):
    """A source that has all rows in the memory of the process."""

    @cached_property
    def _table(self) -> Array:
        table = np.empty((self.shape[0], self.file.row_bytes), np.uint8)
        self.file.read(np.arange(len(table)), np.arange(len(table)), table)
        return table.view(self.dtype).reshape(self.shape)


@dataclass(eq=False, kw_only=True)
class Mapped(Source):
    """A source that maps the file to memory.

    Attributes:
        advice: advice to the operating system about the map, such as ``mmap.MADV_RANDOM``.
    """

    advice: int = mmap.MADV_NORMAL

    @cached_property
    def _table(self) -> Array:
        with open(self.file.path, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapping.madvise(self.advice)
        return np.ndarray(self.shape, self.dtype, mapping, self.file.offset)


@dataclass(eq=False, kw_only=True)
class Cached(Source):
    """A source with a cache of rows, whose policy does not know future batches.

    When a batch is made, its missing rows are read in file order and several at once, as the loader's cache does.

    Attributes:
        num_slots: number of rows that the cache holds.
        make: function that makes the policy. The rows of a fixed policy are read with the first batch.
    """

    num_slots: int
    make: Callable[[], Policy]

    @cached_property
    def policy(self) -> Policy:
        """The cache policy of this process."""
        return self.make()

    @cached_property
    def _cache(self) -> Array:
        cache = np.empty((self.num_slots, self.file.row_bytes), np.uint8)
        if isinstance(self.policy, Fixed):
            rows = np.flatnonzero(self.policy.slot_of >= 0)
            self.file.read(rows, self.policy.slot_of[rows], cache)
        return cache

    def rows(self, ids: Array, out: Array, workspace: Workspace) -> None:
        """Gather the rows of distinct ids into ``out``, from the cache or the file, and update the cache."""
        cache, as_bytes = self._cache, out.view(np.uint8).reshape(len(ids), self.file.row_bytes)
        places = np.argsort(ids)
        rows = ids[places]
        slots = self.policy.slot_of[rows]
        is_missing = slots < 0
        missing, into = rows[is_missing], places[is_missing]
        self.file.read(missing, into, as_bytes)
        as_bytes[places[~is_missing]] = cache[slots[~is_missing]]
        self.policy.update(rows)
        slots = self.policy.slot_of[missing]
        cache[slots[slots >= 0]] = as_bytes[into[slots >= 0]]
