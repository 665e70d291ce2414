"""The columns of a part's vertices, and where their edges stand in the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.graph import Graph
from hoptrain.kernels.cpu.columns import copy_columns


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class OwnColumns:
    """What the machine with part p has of the graph.

    Samplers take ``graph`` as any other: a vertex keeps its id, which stands in the address of its draws. So an owner's draws are those of the whole graph,
    but for the places of their edges.

    Attributes:
        graph: all V vertices; the columns of other parts' are empty.
        begins: (n,) where the columns of its vertices begin in the whole graph, by ascending id.
        num_edges: E, of the whole graph.
        place: (V,) where each vertex is, counted through the parts.
        bounds: (P+1,) part p has the places from bounds[p] to bounds[p + 1].
        part: p.
    """

    graph: Graph
    begins: Array
    num_edges: int
    place: Array
    bounds: Array
    part: int

    def owner(self, nodes: Array) -> Array:
        """The part of each vertex of ``nodes`` (N,), (N,) int64."""
        return np.searchsorted(self.bounds, self.place[nodes], side="right") - 1

    def places(self, nodes: Array, indptr: Array, edge_ids: Array) -> Array:
        """Where edges (n,) of ``graph`` stand in the whole graph; those from indptr[i] to indptr[i + 1] enter ``nodes[i]``, a vertex of this part."""
        rows = self.place[nodes].astype(np.int64) - self.bounds[self.part]
        shifts = self.begins[rows].astype(np.int64) - self.graph.indptr[nodes]
        places: Array = (edge_ids + np.repeat(shifts, np.diff(indptr))).astype(id_dtype(self.num_edges), copy=False)
        return places


def own_columns(graph: Graph, place: Array, bounds: Array, part: int) -> OwnColumns:
    """Copy the columns of a part's vertices, with their weights.

    Args:
        graph: the whole graph.
        place: (V,) where each vertex is, counted through the parts; within a part ids ascend.
        bounds: (P+1,) of the parts.
        part: which.
    """
    nodes = np.flatnonzero((place >= bounds[part]) & (place < bounds[part + 1])).astype(graph.indices.dtype)
    begins = graph.indptr[nodes]
    indptr = np.zeros(graph.num_nodes + 1, np.int64)
    indptr[nodes.astype(np.int64) + 1] = graph.indptr[nodes.astype(np.int64) + 1] - begins
    np.cumsum(indptr, out=indptr)
    indptr = indptr.astype(offset_dtype(int(indptr[-1])))
    indices, weights = (None if array is None else _copied(graph, array, nodes) for array in (graph.indices, graph.weights))
    own = Graph(indptr, indices, weights=weights, is_sorted=graph.is_sorted, validate=False)  # type: ignore[arg-type]
    return OwnColumns(graph=own, begins=begins, num_edges=graph.num_edges, place=place, bounds=bounds, part=part)


def _copied(graph: Graph, array: Array, nodes: Array) -> Array:
    """The entries (n,) of an array (E,) for the edges into ``nodes``."""
    ends = np.empty(len(nodes) + 1, np.int64)
    out = np.empty(int(np.sum(graph.indptr[nodes.astype(np.int64) + 1] - graph.indptr[nodes], dtype=np.int64)), array.dtype)
    copy_columns(graph.indptr, array, nodes, len(nodes), ends, out)
    return out
