"""Readers of edge arrays in files: whole CSC columns of some nodes, and single entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows

MOST_AT_ONCE = 1 << 22
"""Approximate maximum number of entries of an edge array that are read together; a single hop of a batch may need more."""


class NodeColumns(NamedTuple):
    """The CSC columns of some nodes: the nodes in ascending order, and the start and length of each column, (n,) each."""

    vertices: Array
    begins: Array
    degrees: Array

    @classmethod
    def of(cls, nodes: Array, indptr: Array) -> NodeColumns:
        """Return the columns of distinct ``nodes`` (n,) in a graph with ``indptr`` (V+1,)."""
        vertices = np.sort(nodes).astype(np.int64)
        begins = indptr[vertices].astype(np.int64)
        return cls(vertices, begins, indptr[vertices + 1] - begins)

    @property
    def ends(self) -> Array:
        """Offsets (n + 1,) int64 of the columns in their concatenation."""
        return np.concatenate([[0], np.cumsum(self.degrees, dtype=np.int64)])

    def places(self) -> Array:
        """Return the CSC positions (M,) int64 of all edges of the columns, ascending."""
        found: Array = np.arange(self.degrees.sum()) + np.repeat(self.begins - self.ends[:-1], self.degrees)
        return found

    def enter(self, starts: Array) -> None:
        """Write the offsets of the concatenated columns into ``starts`` (V+1,) at these nodes. Other entries of ``starts`` are undefined."""
        ends = self.ends
        starts[self.vertices], starts[self.vertices + 1] = ends[:-1], ends[1:]


def in_parts(sizes: Iterable[int]) -> list[list[int]]:
    """Group the indices of ``sizes`` into ranges of at most ``MOST_AT_ONCE`` entries; the entries of a range are read together."""
    parts: list[list[int]] = [[]]
    left = MOST_AT_ONCE
    for i, size in enumerate(sizes):
        if size > left and parts[-1]:
            parts.append([])
            left = MOST_AT_ONCE
        parts[-1].append(i)
        left -= size
    return parts


def read_entries(file: FileRows, places: Array) -> Array:
    """Read the entries (M,) of a file at positions ``places`` (M,), which may repeat, in the order of the file."""
    order = np.argsort(places)
    found = np.empty(len(places), file.dtype)
    file.read(places[order].astype(np.int64, copy=False), order, found.view(np.uint8).reshape(len(places), file.row_bytes))
    return found
