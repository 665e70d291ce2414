"""Weighted sampling with edge weights in a file: for each hop, the whole columns of its destinations are read, and alias tables are built for them.

A destination draws the same edges as with all columns in memory, since its alias table depends on its own weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns, count_positive
from hoptrain.samplers.buffers.alias import tables_of
from hoptrain.samplers.buffers.hop import Hop, count_edges, draw_edges, is_distinct_by_weight, most_edges
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hops import Request
from hoptrain.samplers.loader.topology.columns import NodeColumns, in_parts


class DrawsByWeight:
    """A function object that draws edges by weight for ``NeighborSampler``. It takes 8 bytes of memory for each node of the graph (12 from 2**31 edges on)."""

    def __init__(self, indptr: Array, read: Callable[[Array], Array]) -> None:
        """Store the graph's offsets (V+1,), and a function that reads the weights (M,) at CSC positions (M,)."""
        self._indptr, self._read, self._workspace = indptr, read, Workspace()
        self._starts = np.empty(len(indptr), indptr.dtype)
        self._positive = np.empty(len(indptr) - 1, np.int32)

    def __call__(self, rule: kernels.DrawOptions, asked: Sequence[Request]) -> list[tuple[Array, Array]]:
        """Return offsets (n+1,) and CSC positions (M,) of the edges that each request draws."""
        found: list[tuple[Array, Array]] = []
        columns = [NodeColumns.of(own.nodes, self._indptr) for own in asked]
        for some in in_parts(int(own.degrees.sum()) for own in columns):
            weights = self._read(np.concatenate([columns[i].places() for i in some]))
            ends = np.cumsum([columns[i].degrees.sum() for i in some])
            found += [self._drawn(rule, asked[i], columns[i], own) for i, own in zip(some, np.split(weights, ends[:-1]), strict=True)]
        return found

    def _drawn(self, rule: kernels.DrawOptions, asked: Request, own: NodeColumns, weights: Array) -> tuple[Array, Array]:
        nodes, number, indptr = asked.nodes, len(asked.nodes), own.ends
        positive = np.empty(number, np.int32)
        count_positive(indptr, weights, positive)
        own.enter(self._starts)
        self._positive[own.vertices] = positive
        tables = tables_of(indptr, weights)
        sources = tables.alias  # a placeholder, since sources are not read
        plain = kernels.CscColumns(self._starts, sources, *tables)
        columns = WeightedColumns(*plain, weights, self._positive) if is_distinct_by_weight(rule) else plain
        most = most_edges(number, rule.fanout, lambda: count_edges(columns, nodes, 0, number, rule))
        edges = kernels.HopEdges(np.zeros(number + 1, np.int64), np.empty(most, np.int64), np.empty(most, np.int32))
        total = draw_edges(Hop(self._workspace, columns, nodes, 0, number, rule, asked.address, edges, 0))
        shift = self._indptr[nodes].astype(np.int64) - self._starts[nodes]
        return edges.indptr, edges.edge_ids[:total] + np.repeat(shift, np.diff(edges.indptr))
