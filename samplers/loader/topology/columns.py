"""Whole columns of some nodes, and single entries, of the arrays of a graph's edges that lie in files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows

MOST_AT_ONCE = 1 << 22
"""Entries of columns that are read together, about; a hop of a batch with more of them takes more."""


class Columns(NamedTuple):
    """Of some nodes, ascending: themselves, where their columns begin and how long they are, (n,) each."""

    vertices: Array
    begins: Array
    degrees: Array

    @classmethod
    def of(cls, nodes: Array, indptr: Array) -> Columns:
        """Those of ``nodes`` (n,), distinct, in a graph with ``indptr`` (V+1,)."""
        vertices = np.sort(nodes).astype(np.int64)
        begins = indptr[vertices].astype(np.int64)
        return cls(vertices, begins, indptr[vertices + 1] - begins)

    @property
    def ends(self) -> Array:
        """(n + 1,) int64, where each begins and ends if they follow one another."""
        return np.concatenate([[0], np.cumsum(self.degrees, dtype=np.int64)])

    def places(self) -> Array:
        """(M,) int64, the places of all of their edges, ascending."""
        found: Array = np.arange(self.degrees.sum()) + np.repeat(self.begins - self.ends[:-1], self.degrees)
        return found

    def enter(self, starts: Array) -> None:
        """Let ``starts`` (V+1,) say of these nodes where their columns begin and end if they follow one another; of others it says nothing."""
        ends = self.ends
        starts[self.vertices], starts[self.vertices + 1] = ends[:-1], ends[1:]


def in_parts(sizes: Iterable[int]) -> list[list[int]]:
    """Numbers of what has these sizes, in parts that are read together."""
    parts: list[list[int]] = [[]]
    room = MOST_AT_ONCE
    for i, size in enumerate(sizes):
        if size > room and parts[-1]:
            parts.append([])
            room = MOST_AT_ONCE
        parts[-1].append(i)
        room -= size
    return parts


def read_entries(file: FileRows, places: Array) -> Array:
    """The entries (M,) of a file at ``places`` (M,), which may repeat: in the order of the file, many at once."""
    order = np.argsort(places)
    found = np.empty(len(places), file.dtype)
    file.read(places[order].astype(np.int64, copy=False), order, found.view(np.uint8).reshape(len(places), file.row_bytes))
    return found
