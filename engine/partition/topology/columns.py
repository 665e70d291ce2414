"""The columns of a part's nodes, and where their edges stand in the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.graph import Graph, PartialGraph
from hoptrain.kernels.cpu.columns import copy_columns


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class OwnColumns:
    """What the machine with part p has of the graph.

    Samplers take ``graph`` as any other: a node keeps its id, which stands in the address of its draws. So an owner's draws are those of the whole graph,
    but for the places of their edges.

    Attributes:
        graph: all V nodes; the columns of other parts' are empty.
        whole: (V+1,) where the columns begin in the whole graph.
        place: (V,) where each node is, counted through the parts.
        bounds: (P+1,) part p has the places from bounds[p] to bounds[p + 1].
        part: p.
    """

    graph: Graph
    whole: Array
    place: Array
    bounds: Array
    part: int

    @property
    def num_edges(self) -> int:
        """E, of the whole graph."""
        return int(self.whole[-1])

    def owner(self, nodes: Array) -> Array:
        """The part of each node of ``nodes`` (N,), (N,) int64."""
        return np.searchsorted(self.bounds, self.place[nodes], side="right") - 1

    def places(self, nodes: Array, indptr: Array, edge_ids: Array) -> Array:
        """Where edges (n,) of ``graph`` stand in the whole graph; those from indptr[i] to indptr[i + 1] enter ``nodes[i]``, a node of this part."""
        shifts = self.whole[nodes].astype(np.int64) - self.graph.indptr[nodes]
        places: Array = (edge_ids + np.repeat(shifts, np.diff(indptr))).astype(id_dtype(self.num_edges), copy=False)
        return places


def own_columns(graph: Graph, place: Array, bounds: Array, part: int) -> OwnColumns:
    """Copy the columns of a part's nodes, with their weights.

    Args:
        graph: the whole graph.
        place: (V,) where each node is, counted through the parts; within a part ids ascend.
        bounds: (P+1,) of the parts.
        part: which.
    """
    nodes = np.flatnonzero((place >= bounds[part]) & (place < bounds[part + 1]))
    indptr = np.zeros(graph.num_nodes + 1, np.int64)
    indptr[nodes + 1] = graph.indptr[nodes + 1] - graph.indptr[nodes]
    np.cumsum(indptr, out=indptr)
    indptr = indptr.astype(offset_dtype(int(indptr[-1])))
    weights = None if graph.weights is None else _copied(graph, graph.weights, nodes, int(indptr[-1]))
    sources = _copied(graph, graph.indices, nodes, int(indptr[-1]))
    own = PartialGraph(indptr, sources, weights=weights, is_sorted=graph.is_sorted, validate=False)
    return OwnColumns(graph=own, whole=graph.indptr, place=place, bounds=bounds, part=part)


def _copied(graph: Graph, array: Array, nodes: Array, number: int) -> Array:
    """The ``number`` entries of an array (E,) for the edges into ``nodes``."""
    ends, out = np.empty(len(nodes) + 1, np.int64), np.empty(number, array.dtype)
    copy_columns(graph.indptr, array, nodes.astype(graph.indices.dtype), len(nodes), ends, out)
    return out
