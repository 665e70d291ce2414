"""A graph with one node type and one edge type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_weights
from hoptrain.engine.columns import RelationColumns, wide_ids
from hoptrain.engine.errors import InputError, explain_keywords, join_limited
from hoptrain.engine.store import checking, complete_header, create_new_folder, open_folder

KIND = "graph"


@explain_keywords
class Graph(RelationColumns):
    """A read-only directed graph of V nodes and E edges in compressed sparse column (CSC) form, grouped by destination.

    ``RelationColumns`` explains columns, edge positions and edge ids.

    Attributes:
        indptr: (V+1,) offset of each column in ``indices``; ``indptr[V] == E``.
        indices: (E,) source nodes.
        weights: (E,) float32 or float64, or None: the sampling weight of each edge, relative to the other edges of its column.
        times: (E,) int64, or None: the time stamp of each edge, in any unit and from any origin.
        edge_ids: (E,) the id of the edge at each position: its index in input order. None if ids equal positions.

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
        """Store CSC arrays, without a copy if their dtypes already fit.

        Args:
            indptr: (V+1,) integers from 0 to E that never descend.
            indices: (E,) integers in [0, V).
            weights: (E,) float32 or float64, finite and not negative: one weight for each entry of ``indices``.
            times: (E,) integers: one time stamp for each entry of ``indices``.
            edge_ids: (E,) distinct non-negative integers, one for each entry of ``indices``; by default an edge's id is its position.
            is_sorted: whether the sources ascend within every column; None to check this at first use.
            validate: whether to check the arrays, in O(E); False only for arrays that were validated before.

        Raises:
            InputError: an array has a wrong dtype or length, offsets descend, or a source is outside [0, V).
        """
        self._take(indptr, indices, None, weights, times, edge_ids, is_sorted, validate)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, is_sorted={self.is_sorted})"

    def save(self, path: str | Path) -> None:
        """Write the graph into a new folder. ``path`` must not exist yet; ``Graph.open`` reads it."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(self.header())

    def header(self) -> dict[str, Any]:
        """Return the entries of the folder's header that describe the graph."""
        return {"num_nodes": self.num_nodes, "num_edges": self.num_edges, "is_sorted": self.is_sorted}

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> Graph:
        """Open a folder written by ``save`` as memory-mapped arrays: nothing is copied, and processes share the pages.

        Args:
            path: folder that ``save`` wrote.
            verify: whether to compare checksums; by default only for folders up to 256 MiB.

        Raises:
            InputError: the folder was not written by ``save``, or is truncated or altered.
        """
        arrays, meta = open_folder(Path(path), KIND, verify=verify)
        with complete_header(Path(path)), checking(Path(path), verify) as is_new:
            return cls.from_arrays(arrays, meta["is_sorted"], is_new)

    @classmethod
    def from_edges(
        cls, src: Array, dst: Array, num_nodes: int | None = None, *, weights: Array | None = None, times: Array | None = None
    ) -> Graph:
        """Build a graph from edges src[i] -> dst[i] with ids i. Columns are sorted; parallel edges are kept in input order.

        Args:
            src: (E,) integers: the source of each edge.
            dst: (E,) integers: the destination of each edge.
            num_nodes: V, at most 2**40; by default the largest id plus one.
            weights: (E,) float32 or float64: one sampling weight for each edge.
            times: (E,) integers: one time stamp for each edge.

        Raises:
            InputError: lengths differ, ids are not integers, V is out of range, or an edge has a node outside [0, V).
        """
        if num_nodes is None:
            src, dst = wide_ids(src, "src"), wide_ids(dst, "dst")
            num_nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        return cls.from_ends(src, dst, num_nodes, num_nodes, weights=weights, times=times)

    @classmethod
    def from_pairs(cls, src: Array, dst: Array, num_nodes: int) -> Graph:
        """Build an undirected graph from P pairs. Pair i gives the edges src[i] -> dst[i] with id i and dst[i] -> src[i] with id P + i.

        Repeated edges are merged into the one with the smallest id, so some ids may belong to no edge.
        """
        return cls.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), num_nodes).without_repeats()

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """Read a square SciPy sparse matrix or array. Each stored entry (i, j) is an edge i -> j, whatever its value. CSC is not copied.

        Edge ids follow the storage order of CSC, CSR and COO matrices, and the order of ``tocoo()`` for other formats.
        """
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            sides = " x ".join(str(side) for side in matrix.shape)
            raise InputError(f"the matrix is {sides}: an adjacency matrix must be square; pad the shorter side")
        if matrix.format == "csc":
            return cls(matrix.indptr, matrix.indices[: matrix.indptr[-1]])  # SciPy allows unused space after the entries
        coo = matrix.tocoo()  # not tocsc(), which sums duplicate entries
        return cls.from_edges(coo.row, coo.col, matrix.shape[0])

    @classmethod
    def from_pyg(cls, data: Any, *, time_attr: str | None = None) -> Graph:
        """Read a homogeneous ``torch_geometric.data.Data``. An edge's id is its column in ``edge_index``; ``edge_weight`` becomes the weights.

        Args:
            data: the graph, with ``edge_index`` (2, E).
            time_attr: name of an edge or node attribute with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: ``edge_index`` or the named attribute is missing, or an edge weight or time is not one number for each edge.
        """
        if getattr(data, "edge_index", None) is None:
            raise InputError(f"{type(data).__name__} has no edge_index: a homogeneous Data with edge_index is needed; set data.edge_index")
        edge_index, times = data.edge_index, None if time_attr is None else data.get(time_attr)
        if time_attr is not None and times is None:
            raise InputError(f"data has no attribute {time_attr!r}: it has {join_limited(sorted(data.keys()))}; name one of these")
        if time_attr is not None and data.is_node_attr(time_attr):
            times = times_of_sources(times, ends_of(edge_index)[0])
        return cls.from_edge_index(edge_index, int(data.num_nodes), weights=getattr(data, "edge_weight", None), times=times)

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None, *, weights: Any = None, times: Any = None) -> Graph:
        """Read ``edge_index`` (2, E) as in PyG, a NumPy array or torch tensor: row 0 has the sources, row 1 the destinations.

        ``weights`` (E,) or (E, 1) may have any real dtype; dtypes other than float32 and float64 are converted to float32.
        ``from_edges`` describes the other arguments.
        """
        weights, times = None if weights is None else as_weights(weights), None if times is None else as_array(times)
        return cls.from_edges(*ends_of(edge_index), num_nodes, weights=weights, times=times)

    @classmethod
    def from_dgl(cls, graph: Any, *, weight_attr: str | None = None, time_attr: str | None = None) -> Graph:
        """Read a homogeneous ``dgl.DGLGraph``; edge ids are DGL's.

        Args:
            graph: the ``DGLGraph``.
            weight_attr: name of the edge field with weights.
            time_attr: name of an edge field or node field with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: the graph has several edge types, or a named field is missing.
        """
        if not graph.is_homogeneous:
            raise InputError(f"the DGL graph has the edge types {graph.canonical_etypes}: it must have one; pick it with graph[etype]")
        src, dst = map(as_array, graph.edges())
        fields = {**getattr(graph, "ndata", {}), **getattr(graph, "edata", {})}
        for attr in (weight_attr, time_attr):
            if attr is not None and attr not in fields:
                raise InputError(f"the DGL graph has no field {attr!r}: it has {join_limited(sorted(fields)) or 'none'}; name one of these")
        weights, times = (None if attr is None else fields[attr] for attr in (weight_attr, time_attr))
        if time_attr is not None and time_attr not in graph.edata:
            times = times_of_sources(times, src)
        return cls.from_edge_index(np.stack([src, dst]), int(graph.num_nodes()), weights=weights, times=times)


class PartialGraph(Graph):
    """A graph of which only some columns are loaded and the others are empty, so it may have no edge of positive weight."""

    __slots__ = ()


def ends_of(edge_index: Any) -> tuple[Array, Array]:
    """Return the sources and the destinations of an ``edge_index`` (2, E) of NumPy or torch.

    Raises:
        InputError: the array has another shape.
    """
    rows = as_array(edge_index)
    if rows.ndim != 2 or len(rows) != 2:
        raise InputError(f"edge_index has shape {rows.shape}: it must be (2, E), a row of sources and one of destinations; reshape it")
    return rows[0], rows[1]


def times_of_sources(times: Any, src: Array) -> Array:
    """Return the time of each edge's source, given node times (V,). Sources out of range are clipped; later checks report them."""
    return as_array(times).take(src, mode="clip")
