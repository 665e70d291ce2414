"""Draws by weight, of a graph whose weights lie in a file: the whole columns of a hop's destinations are read, and alias tables are made for these alone.

A destination draws what it would draw with all columns in memory, since its table is made of its own weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns, count_positive
from hoptrain.samplers.feed.topology.entries import read_entries
from hoptrain.samplers.scratch.alias import tables_of
from hoptrain.samplers.scratch.hop import Hop, HopByWeight, count_edges, draw_in_order, is_distinct_by_weight, most_edges
from hoptrain.samplers.scratch.workspace import Workspace

_MOST_AT_ONCE = 1 << 22
"""Weights that are read together, about; a hop with more of them takes more."""


class _Columns(NamedTuple):
    """Of a hop's destinations, ascending: themselves, where their columns begin and how long they are, (n,) each."""

    vertices: Array
    begins: Array
    degrees: Array


class DrawsByWeight:
    """Answers what ``NeighborSampler.asking`` asks by weight. It has 12 bytes a vertex (16 from 2**31 edges on) of memory, once it was asked."""

    def __init__(self, indptr: Array, file: FileRows) -> None:
        """Take the graph's offsets (V+1,), and the file of its weights (E,)."""
        self._indptr, self._file, self._workspace = indptr, file, Workspace()
        self._starts = np.empty(len(indptr), indptr.dtype)
        self._positive = np.empty(len(indptr) - 1, np.int32)

    def __call__(self, hops: Sequence[HopByWeight]) -> list[Array]:
        """Of each hop (n + M,): how many edges each of its destinations (n,) gives, and the places of the edges (M,)."""
        found: list[Array] = []
        columns = [self._columns(hop.nodes) for hop in hops]
        for some in _in_parts([int(own.degrees.sum()) for own in columns]):
            weights = read_entries(self._file, np.concatenate([_places(columns[i]) for i in some]))
            ends = np.cumsum([columns[i].degrees.sum() for i in some])
            found += [self._drawn(hops[i], columns[i], own) for i, own in zip(some, np.split(weights, ends[:-1]), strict=True)]
        return found

    def _columns(self, nodes: Array) -> _Columns:
        vertices = np.sort(nodes).astype(np.int64)
        begins = self._indptr[vertices].astype(np.int64)
        return _Columns(vertices, begins, self._indptr[vertices + 1] - begins)

    def _drawn(self, hop: HopByWeight, own: _Columns, weights: Array) -> Array:
        rule, nodes, number = hop.rule, hop.nodes, len(hop.nodes)
        indptr = np.concatenate([[0], np.cumsum(own.degrees)])
        positive = np.empty(number, np.int32)
        count_positive(indptr, weights, positive)
        self._starts[own.vertices], self._starts[own.vertices + 1] = indptr[:-1], indptr[1:]
        self._positive[own.vertices] = positive
        tables = tables_of(indptr, weights)
        sources = tables.alias  # they are not at hand; nobody looks at what stands for them
        plain = kernels.Columns(self._starts, sources, *tables)
        columns = WeightedColumns(*plain, weights, self._positive) if is_distinct_by_weight(rule) else plain
        most = most_edges(number, rule.fanout, lambda: count_edges(columns, nodes, 0, number, rule))
        edges = kernels.Edges(np.zeros(number + 1, np.int64), np.empty(most, np.int64), np.empty(most, np.int32))
        [total] = draw_in_order([Hop(self._workspace, columns, nodes, 0, number, rule, hop.address, edges, 0)], lambda *_: None)
        counts = np.diff(edges.indptr)
        shift = self._indptr[nodes].astype(np.int64) - self._starts[nodes]
        answer: Array = np.concatenate([counts, edges.edge_ids[:total] + np.repeat(shift, counts)])
        return answer


def _places(columns: _Columns) -> Array:
    """The places of all of their edges, ascending."""
    before = np.cumsum(columns.degrees) - columns.degrees
    found: Array = np.arange(columns.degrees.sum()) + np.repeat(columns.begins - before, columns.degrees)
    return found


def _in_parts(sizes: Iterable[int]) -> list[list[int]]:
    """Numbers of what has these sizes, in parts that are read together."""
    parts: list[list[int]] = [[]]
    room = _MOST_AT_ONCE
    for i, size in enumerate(sizes):
        if size > room and parts[-1]:
            parts.append([])
            room = _MOST_AT_ONCE
        parts[-1].append(i)
        room -= size
    return parts
