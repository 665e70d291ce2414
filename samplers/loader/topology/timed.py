"""Temporal sampling with edge times in a file: for each hop, the whole columns of its nodes are read and sorted by time.

A node draws the same edges as with all columns in memory, since its random numbers depend on its address, and each column is sorted separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.nodewise import temporal as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import DrawOptions, HopEdges
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.buffers.hop import most_edges, scratch_for
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hops import Request
from hoptrain.samplers.loader.topology.columns import NodeColumns, in_parts

_VERTEX = (1 << TREE_SHIFT) - 1
_EARLIEST = np.iinfo(np.int64).min


class DrawsByTime:
    """A function object that draws edges for temporal samplers. It takes 4 bytes of memory for each node of the graph (8 from 2**31 edges on)."""

    def __init__(self, indptr: Array, read: Callable[[Array], Array] | None) -> None:
        """Store the graph's offsets (V+1,), and a function that reads the times (M,) at CSC positions (M,); None if all edges precede any bound."""
        self._indptr, self._read, self._workspace = indptr, read, Workspace()
        self._starts = np.empty(len(indptr), indptr.dtype)

    def __call__(self, rule: kernels.TimedDrawOptions, asked: Sequence[Request]) -> list[tuple[Array, Array]]:
        """Return offsets (n+1,) and CSC positions (M,) of the edges that each request draws."""
        if rule.fanout == 0:
            return [(np.zeros(len(own.nodes) + 1, np.int64), np.empty(0, np.int64)) for own in asked]
        found: list[tuple[Array, Array]] = []
        columns = [NodeColumns.of(np.unique(own.nodes & _VERTEX), self._indptr) for own in asked]
        for some in in_parts(int(own.degrees.sum()) for own in columns):
            sizes = [int(columns[i].degrees.sum()) for i in some]
            times = (
                np.full(sum(sizes), _EARLIEST) if self._read is None else self._read(np.concatenate([columns[i].places() for i in some]))
            )
            found += [
                self._drawn(rule, asked[i], columns[i], own) for i, own in zip(some, np.split(times, np.cumsum(sizes)[:-1]), strict=True)
            ]
        return found

    def _drawn(self, rule: kernels.TimedDrawOptions, asked: Request, own: NodeColumns, times: Array) -> tuple[Array, Array]:
        first, last = asked.first, asked.first + len(asked.nodes)
        by_time, in_order = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
        kernels.order_by_time(own.ends, times, by_time, in_order)
        own.enter(self._starts)
        # keeps each node's index in the batch, on which random numbers depend
        keys = np.concatenate([np.zeros(first, np.int64), asked.nodes])
        columns = kernels.TimedColumns(
            self._starts, by_time, in_order, by_time
        )  # the last argument is a placeholder, since sources are not read
        scratch: Any = scratch_for(self._workspace, DrawOptions(rule.fanout, rule.replace, False))
        most = most_edges(last - first, rule.fanout, lambda: kernels.count_edges(columns, keys, first, last, asked.times, rule, scratch))
        edges = HopEdges(np.zeros(last + 1, np.int64), np.empty(most, np.int64), by_time[:0])
        total = kernels.draw_places(columns, keys, first, last, asked.times, rule, asked.address, scratch, edges, 0)
        vertices, indptr = asked.nodes & _VERTEX, edges.indptr[first:]
        shift = self._indptr[vertices].astype(np.int64) - self._starts[vertices]
        return indptr, edges.edge_ids[:total] + np.repeat(shift, np.diff(indptr))
