"""A graph with one type of nodes and of edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_weights
from hoptrain.engine.columns import RelationColumns, wide_ids
from hoptrain.engine.errors import InputError, join_limited
from hoptrain.engine.store import checking, complete_header, create_new_folder, open_folder

KIND = "graph"


class Graph(RelationColumns):
    """A directed graph of V nodes and E edges, read-only, stored by destination: the columns of its only relation.

    See ``RelationColumns`` for what a column is, and for positions and ids of edges.

    Attributes:
        indptr: (V+1,) where each column begins, ``indptr[V] == E``.
        indices: (E,) source nodes.
        weights: (E,) float32 or float64, or None: how likely an edge is drawn, relative to others of its column.
        times: (E,) int64, or None: when each edge came to be, in any unit and from any origin.
        edge_ids: (E,) the id of the edge at each position, its number in the order it was given in; None where that is the position.

    Examples:
        >>> from hoptrain import Graph
        >>> graph = Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 1])  # 0 -> 1, 1 -> 2, 2 -> 0, 2 -> 1
        >>> graph
        Graph(num_nodes=3, num_edges=4, is_sorted=True)
        >>> graph.indices[graph.indptr[1] : graph.indptr[2]]  # the in-neighbours of node 1
        array([0, 2], dtype=int32)
        >>> graph.edge_ids  # the edge at each position, by its number above
        array([2, 0, 3, 1], dtype=int32)
    """

    __slots__ = ()

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        weights: Array | None = None,
        times: Array | None = None,
        edge_ids: Array | None = None,
        is_sorted: bool | None = None,
        validate: bool = True,
    ) -> None:
        """Take CSC arrays (without a copy where dtypes allow).

        Args:
            indptr: (V+1,) integers, ascending from 0 to E.
            indices: (E,) integers in [0, V).
            weights: (E,) one for each entry of ``indices``.
            times: (E,) integers, one for each entry of ``indices``.
            edge_ids: (E,) distinct integers, not negative, one for each entry of ``indices``; by default an edge's position is its id.
            is_sorted: whether the sources ascend within every column; None to have it looked up when it is first needed.
            validate: False only for arrays that were validated before (O(E) otherwise).

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a node that does not exist.
        """
        self._take(indptr, indices, None, weights, times, edge_ids, is_sorted, validate)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, is_sorted={self.is_sorted})"

    def save(self, path: str | Path) -> None:
        """Write the graph alone as a folder; ``path`` must not exist yet. Opened again with ``Graph.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(self.header())

    def header(self) -> dict[str, Any]:
        """Return what the header of a folder states in addition to the arrays."""
        return {"num_nodes": self.num_nodes, "num_edges": self.num_edges, "is_sorted": self.is_sorted}

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> Graph:
        """Open a folder written by ``save``, memory-mapped: nothing is copied, and processes share the pages.

        Args:
            path: the folder.
            verify: compare checksums; by default for folders up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        arrays, meta = open_folder(Path(path), KIND, verify=verify)
        with complete_header(Path(path)), checking(Path(path), verify) as is_new:
            return cls.from_arrays(arrays, meta["is_sorted"], is_new)

    @classmethod
    def from_edges(
        cls, src: Array, dst: Array, num_nodes: int | None = None, *, weights: Array | None = None, times: Array | None = None
    ) -> Graph:
        """Make a graph of edges src[i] -> dst[i], whose ids are i; columns come out sorted. Parallel edges stay, in the order of the input.

        Args:
            src: (E,) integers, sources.
            dst: (E,) integers, destinations.
            num_nodes: V, at most 2**40; by default the largest id plus one.
            weights: (E,) one for each edge.
            times: (E,) integers, one for each edge.

        Raises:
            InputError: lengths differ, ids are no integers, V is out of range, or an edge names a node outside [0, V).
        """
        if num_nodes is None:
            src, dst = wide_ids(src, "src"), wide_ids(dst, "dst")
            num_nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        return cls.from_ends(src, dst, num_nodes, num_nodes, weights=weights, times=times)

    @classmethod
    def from_pairs(cls, src: Array, dst: Array, num_nodes: int) -> Graph:
        """Make a graph with each of P pairs as two edges: of pair i, src[i] -> dst[i] has the id i, and dst[i] -> src[i] the id P + i.

        An edge that several pairs make is kept once, with the least of its ids; the others are no edge's. See ``from_edges``.
        """
        return cls.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), num_nodes).without_repeats()

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """Read a square scipy sparse matrix or array; every stored entry (i, j) is an edge i -> j, whatever its value. CSC is not copied.

        Ids count the entries as the matrix stores them, where it is no CSC, CSR or COO as ``tocoo()`` does.
        """
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            sides = " x ".join(str(side) for side in matrix.shape)
            raise InputError(f"the matrix is {sides}: an adjacency matrix is square; pad the shorter side")
        if matrix.format == "csc":
            return cls(matrix.indptr, matrix.indices[: matrix.indptr[-1]])  # scipy allows for unused room behind the entries
        coo = matrix.tocoo()  # since tocsc() of the other formats adds equal entries up
        return cls.from_edges(coo.row, coo.col, matrix.shape[0])

    @classmethod
    def from_pyg(cls, data: Any, *, time_attr: str | None = None) -> Graph:
        """Read a homogeneous ``torch_geometric.data.Data``: ``edge_index`` (2, E), whose columns the ids count, and ``edge_weight`` as the weights.

        Args:
            data: the graph.
            time_attr: what times of edges are called, or of nodes: an edge then has its source's time. PyG's ``is_node_attr`` tells which.

        Raises:
            InputError: no edge_index, or no attribute of that name; an edge_weight, or a time, that is not one number for each edge.
        """
        if getattr(data, "edge_index", None) is None:
            raise InputError(
                f"{type(data).__name__} has no edge_index: only a homogeneous Data with edge_index can be read; convert it first"
            )
        edge_index, times = data.edge_index, None if time_attr is None else data.get(time_attr)
        if time_attr is not None and times is None:
            raise InputError(f"data has no attribute {time_attr!r}: it has {join_limited(sorted(data.keys()))}; name one of these")
        if time_attr is not None and data.is_node_attr(time_attr):
            times = times_of_sources(times, ends_of(edge_index)[0])
        return cls.from_edge_index(edge_index, int(data.num_nodes), weights=getattr(data, "edge_weight", None), times=times)

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None, *, weights: Any = None, times: Any = None) -> Graph:
        """Read edges as PyG has them: ``edge_index`` (2, E), a row of sources and one of destinations, of NumPy or torch. See ``from_edges``.

        ``weights`` (E,) or (E, 1) may be of any real dtype; of others than float32 and float64 they become float32.
        """
        weights, times = None if weights is None else as_weights(weights), None if times is None else as_array(times)
        return cls.from_edges(*ends_of(edge_index), num_nodes, weights=weights, times=times)

    @classmethod
    def from_dgl(cls, graph: Any) -> Graph:
        """Read a homogeneous ``dgl.DGLGraph``; ids are DGL's. Weights have no name of their own there: give them to ``from_edges``."""
        if not graph.is_homogeneous:
            raise InputError(f"the DGL graph has the edge types {graph.canonical_etypes}: only one is read; pick it with graph[etype]")
        src, dst = graph.edges()
        return cls.from_edges(src.cpu().numpy(), dst.cpu().numpy(), int(graph.num_nodes()))


class PartialGraph(Graph):
    """Some columns of a graph, the others empty. Unlike a whole graph it may lack an edge of positive weight."""

    __slots__ = ()


def ends_of(edge_index: Any) -> tuple[Array, Array]:
    """Return the sources and the destinations of an ``edge_index`` (2, E) of NumPy or torch.

    Raises:
        InputError: it has another shape.
    """
    rows = as_array(edge_index)
    if rows.ndim != 2 or len(rows) != 2:
        raise InputError(f"edge_index has shape {rows.shape}: it is (2, E), a row of sources and one of destinations; reshape it")
    return rows[0], rows[1]


def times_of_sources(times: Any, src: Array) -> Array:
    """Return for each edge the time of its source, of ``times`` (V,) of nodes; sources that do not exist are left to later checks."""
    return as_array(times).take(src, mode="clip")
