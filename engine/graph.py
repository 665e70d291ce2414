"""A graph as compressed columns (CSC)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, is_integer
from hoptrain.engine.errors import InputError
from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range


class Graph:
    """A directed graph of V vertices and E edges, read-only, stored by destination.

    Column v, ``indices[indptr[v]:indptr[v + 1]]``, holds the sources of the edges into v: its in-neighbours, those that a GNN layer
    aggregates. Self loops, multi-edges and isolated vertices are allowed. The place of an edge in ``indices`` is its edge id.

    Attributes:
        indptr: (V+1,) int64, where each column begins; ``indptr[V] == E``.
        indices: (E,) int32 if V < 2**31 else int64, source vertices.
        is_sorted: whether the sources ascend within every column.
    """

    __slots__ = ("indices", "indptr", "is_sorted")

    def __init__(self, indptr: Array, indices: Array, *, is_sorted: bool | None = None, validate: bool = True) -> None:
        """Take CSC arrays (without a copy where dtypes allow).

        Args:
            indptr: (V+1,) integers, ascending from 0 to E.
            indices: (E,) integers in [0, V).
            is_sorted: state it to save the check; None looks.
            validate: False only for arrays that were validated before (O(E) otherwise).

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a vertex that does not exist.
        """
        self.indptr: Array = np.asarray(indptr, dtype=np.int64) if validate else indptr
        self.indices: Array = _narrow(indices, len(self.indptr) - 1) if validate else indices
        if validate:
            _check_csc(self.indptr, self.indices)
        self.is_sorted = bool(columns_sorted(self.indptr, self.indices)) if is_sorted is None else is_sorted

    @property
    def num_nodes(self) -> int:
        """V."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.indices)

    def in_degrees(self) -> Array:
        """(V,) int64: how many edges enter each vertex."""
        return np.diff(self.indptr)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, is_sorted={self.is_sorted})"

    @classmethod
    def from_edges(cls, src: Array, dst: Array, num_nodes: int | None = None) -> Graph:
        """Edges src[i] -> dst[i]; columns come out sorted, so the order of the input does not matter.

        Args:
            src: (E,) integers, sources.
            dst: (E,) integers, destinations.
            num_nodes: V; by default the largest id plus one.

        Raises:
            InputError: lengths differ, ids are no integers, or an edge names a vertex outside [0, V).
        """
        src, dst = _integers(src, "src"), _integers(dst, "dst")
        if len(src) != len(dst):
            raise InputError(
                f"src has {len(src):,} entries and dst has {len(dst):,}: an edge needs one of each; give arrays of equal length"
            )
        if num_nodes is None:
            num_nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        for ids, role in ((src, "source"), (dst, "destination")):
            _check_ids(ids, num_nodes, f"the {role} of edge")
        indptr, indices, _ = coo_to_csc(src, dst, num_nodes, id_dtype(num_nodes))
        return cls(indptr, indices, is_sorted=True, validate=False)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A square scipy sparse matrix or array; a stored entry (i, j) is the edge i -> j, whatever its value."""
        if matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"the matrix is {matrix.shape[0]} x {matrix.shape[1]}: an adjacency matrix is square; pad the shorter side")
        csc = matrix.tocsc()
        return cls(csc.indptr, csc.indices)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A homogeneous ``torch_geometric.data.Data`` with ``edge_index`` (2, E)."""
        if getattr(data, "edge_index", None) is None:
            raise InputError(
                f"{type(data).__name__} has no edge_index: only a homogeneous Data with edge_index can be read; convert it first"
            )
        src, dst = data.edge_index.cpu().numpy()
        return cls.from_edges(src, dst, int(data.num_nodes))

    @classmethod
    def from_dgl(cls, graph: Any) -> Graph:
        """A homogeneous ``dgl.DGLGraph``."""
        if not graph.is_homogeneous:
            raise InputError(f"the DGL graph has the edge types {graph.canonical_etypes}: only one is read; pick it with graph[etype]")
        src, dst = graph.edges()
        return cls.from_edges(src.cpu().numpy(), dst.cpu().numpy(), int(graph.num_nodes()))


def _integers(values: Array, name: str) -> Array:
    values = np.ascontiguousarray(values)
    if values.ndim != 1 or (len(values) and not is_integer(values.dtype)):
        raise InputError(
            f"{name} is a {values.dtype} array of shape {values.shape}: vertex ids are a one-dimensional integer array; convert it"
        )
    return values.astype(np.int64, copy=False)


def _narrow(indices: Array, num_nodes: int) -> Array:
    """Check before narrowing, so that a large id cannot wrap around into range."""
    wide = _integers(indices, "indices") if indices.dtype != id_dtype(num_nodes) or indices.ndim != 1 else np.ascontiguousarray(indices)
    _check_ids(wide, num_nodes, "the source of edge")
    return wide.astype(id_dtype(num_nodes), copy=False)


def _check_ids(ids: Array, num_nodes: int, what: str) -> None:
    bad = first_out_of_range(ids, num_nodes)
    if bad >= 0:
        raise InputError(
            f"{what} {bad} is vertex {ids[bad]}, but the graph has the {num_nodes:,} vertices 0 to {num_nodes - 1}: "
            "drop the edge or state a larger num_nodes"
        )


def _check_csc(indptr: Array, indices: Array) -> None:
    if indptr.ndim != 1 or len(indptr) == 0:
        raise InputError(f"indptr has shape {indptr.shape}: it holds V + 1 offsets; an empty graph has indptr [0]")
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise InputError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}: with {len(indices):,} edges it has to run from 0 to {len(indices)}"
        )
    falls = np.flatnonzero(np.diff(indptr) < 0)
    if len(falls):
        v = int(falls[0])
        raise InputError(
            f"indptr falls from {indptr[v]} to {indptr[v + 1]} at vertex {v}: offsets never descend; rebuild it by Graph.from_edges"
        )
