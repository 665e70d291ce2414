"""The columns of a partition's nodes, and the positions of their edges in the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.graph import Graph, PartialGraph
from hoptrain.kernels.cpu.columns import copy_columns


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class OwnColumns:
    """The columns of a partitioned graph that the machine with partition p stores.

    Samplers use ``graph`` like any other graph. Nodes keep their ids, which address random draws, so draws for these nodes equal those in the whole graph,
    except for edge positions.

    Attributes:
        graph: graph of all V nodes, in which the columns of other partitions are empty.
        whole: (V+1,) column offsets of the whole graph.
        place: (V,) position of each node when nodes are ordered by partition.
        bounds: (P+1,); partition p has the positions bounds[p] to bounds[p + 1] - 1.
        part: index p of the partition.
    """

    graph: Graph
    whole: Array
    place: Array
    bounds: Array
    part: int

    @property
    def num_edges(self) -> int:
        """Number of edges of the whole graph, E."""
        return int(self.whole[-1])

    def owner(self, nodes: Array) -> Array:
        """Return the partition of each node in ``nodes`` (N,), (N,) int64."""
        return np.searchsorted(self.bounds, self.place[nodes], side="right") - 1

    def places(self, nodes: Array, indptr: Array, edge_ids: Array) -> Array:
        """Convert edge positions (n,) in ``graph`` to positions in the whole graph. Edges indptr[i] to indptr[i + 1] - 1 enter the own node ``nodes[i]``."""
        shifts = self.whole[nodes].astype(np.int64) - self.graph.indptr[nodes]
        places: Array = (edge_ids + np.repeat(shifts, np.diff(indptr))).astype(id_dtype(self.num_edges), copy=False)
        return places


def own_columns(graph: Graph, place: Array, bounds: Array, part: int) -> OwnColumns:
    """Copy the columns of a partition's nodes, with their weights.

    Args:
        graph: the whole graph.
        place: (V,) position of each node when nodes are ordered by partition and id.
        bounds: (P+1,) position bounds of the partitions.
        part: index of the partition.
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
    """Return the elements of an array (E,) that belong to the edges into ``nodes``, (number,)."""
    ends, out = np.empty(len(nodes) + 1, np.int64), np.empty(number, array.dtype)
    copy_columns(graph.indptr, array, nodes.astype(graph.indices.dtype), len(nodes), ends, out)
    return out
