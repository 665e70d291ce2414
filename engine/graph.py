"""A graph as compressed columns (CSC)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, id_dtype, is_integer, offset_dtype
from hoptrain.engine.errors import InputError
from hoptrain.engine.store import complete_header, create_new_folder, open_folder
from hoptrain.kernels.cpu.alias import first_bad_weight
from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range
from hoptrain.kernels.shared.philox import MAX_VERTEX

KIND = "graph"


class Graph:
    """A directed graph of V vertices and E edges, read-only, stored by destination.

    Column v, ``indices[indptr[v]:indptr[v + 1]]``, holds the sources of the edges into v: its in-neighbours, those that a GNN layer
    aggregates. Self loops, multi-edges and isolated vertices are allowed. The place of an edge in ``indices`` is its edge id.

    Attributes:
        indptr: (V+1,) where each column begins, ``indptr[V] == E``; int32 if E < 2**31 else int64 (files of older versions: int64).
        indices: (E,) int32 if V < 2**31 else int64, source vertices.
        weights: (E,) float32 or float64, finite and not negative, or None: how likely an edge is drawn, relative to others of its column.
        times: (E,) int64, or None: when each edge came to be, in any unit and from any origin.
        is_sorted: whether the sources ascend within every column.
    """

    __slots__ = ("indices", "indptr", "is_sorted", "times", "weights")

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        weights: Array | None = None,
        times: Array | None = None,
        is_sorted: bool | None = None,
        validate: bool = True,
    ) -> None:
        """Take CSC arrays (without a copy where dtypes allow).

        Args:
            indptr: (V+1,) integers, ascending from 0 to E.
            indices: (E,) integers in [0, V).
            weights: (E,) one for each entry of ``indices``.
            times: (E,) integers, one for each entry of ``indices``.
            is_sorted: state it to save the check; None looks.
            validate: False only for arrays that were validated before (O(E) otherwise).

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a vertex that does not exist.
        """
        if validate:
            indptr, indices = as_offsets(indptr), as_ids(indices, "indices")
            check_offsets(indptr, len(indices))
            indices = narrow_ids(indices, len(indptr) - 1)
            indptr = indptr.astype(offset_dtype(len(indices)), copy=False)
            weights = _checked_weights(weights, len(indices))
            times = _checked_times(times, len(indices))
        self.indptr: Array = read_only(indptr)
        self.indices: Array = read_only(indices)
        self.weights: Array | None = None if weights is None else read_only(weights)
        self.times: Array | None = None if times is None else read_only(times)
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
        return np.diff(self.indptr).astype(np.int64, copy=False)

    def destinations(self) -> Array:
        """(E,) int64: the vertex that each edge enters; its source stands in ``indices``."""
        return np.repeat(np.arange(self.num_nodes), self.in_degrees())

    def with_edges(self, is_kept: Array) -> Graph:
        """The graph of the same vertices with some of the edges, their weights and times.

        Args:
            is_kept: (E,) bool.
        """
        if is_kept.shape != (self.num_edges,) or is_kept.dtype != bool:
            raise InputError(
                f"is_kept is {is_kept.dtype} of shape {is_kept.shape}: it is one bool for each of {self.num_edges:,} edges; give a mask"
            )
        indices = self.indices[is_kept]
        indptr = np.concatenate([[0], np.cumsum(is_kept)])[self.indptr].astype(offset_dtype(len(indices)))
        weights, times = (None if array is None else array[is_kept] for array in (self.weights, self.times))
        is_sorted = self.is_sorted or None  # of edges in no order some may be in order
        return Graph(indptr, indices, weights=weights, times=times, is_sorted=is_sorted, validate=False)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, is_sorted={self.is_sorted})"

    def in_memory(self) -> Graph:
        """The same graph in memory of this process, in huge pages where the system grants them (NumPy asks for them).

        Sampling from a mapped file takes about a quarter longer, since its pages are small; but a mapping is shared by all processes of a
        machine, and nothing has to be read before the first batch. For sampling within one process (``num_workers=0``, or threads).
        """
        weights, times = (None if array is None else np.array(array) for array in (self.weights, self.times))
        indptr = self.indptr.astype(offset_dtype(self.num_edges))
        return Graph(indptr, np.array(self.indices), weights=weights, times=times, is_sorted=self.is_sorted, validate=False)

    def save(self, path: str | Path) -> None:
        """Write the graph alone as a folder; ``path`` must not exist yet. Opened again with ``Graph.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(num_nodes=self.num_nodes, num_edges=self.num_edges, is_sorted=self.is_sorted)

    def arrays(self) -> dict[str, Array]:
        """The arrays that there are, by the name of their files; ``from_arrays`` makes a graph of them again."""
        arrays = {"indptr": self.indptr, "indices": self.indices, "weights": self.weights, "times": self.times}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], is_sorted: bool) -> Graph:
        """A graph from ``arrays()``, which may hold others too; they are trusted."""
        options = {name: arrays.get(name) for name in ("weights", "times")}
        return cls(arrays["indptr"], arrays["indices"], **options, is_sorted=is_sorted, validate=False)

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
        with complete_header(Path(path)):
            return cls.from_arrays(arrays, meta["is_sorted"])

    @classmethod
    def from_edges(
        cls, src: Array, dst: Array, num_nodes: int | None = None, *, weights: Array | None = None, times: Array | None = None
    ) -> Graph:
        """Edges src[i] -> dst[i]; columns come out sorted, so the order of the input does not matter.

        Args:
            src: (E,) integers, sources.
            dst: (E,) integers, destinations.
            num_nodes: V, at most 2**40; by default the largest id plus one.
            weights: (E,) one for each edge.
            times: (E,) integers, one for each edge.

        Raises:
            InputError: lengths differ, ids are no integers, V is out of range, or an edge names a vertex outside [0, V).
        """
        src, dst = as_ids(src, "src").astype(np.int64, copy=False), as_ids(dst, "dst").astype(np.int64, copy=False)
        if len(src) != len(dst):
            raise InputError(
                f"src has {len(src):,} entries and dst has {len(dst):,}: an edge needs one of each; give arrays of equal length"
            )
        if num_nodes is None:
            num_nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        if not 0 <= num_nodes <= MAX_VERTEX:
            raise InputError(f"num_nodes is {num_nodes}: a graph has 0 to {MAX_VERTEX} vertices; number them from 0 without large gaps")
        for ids, role in ((src, "source"), (dst, "destination")):
            check_ids(ids, num_nodes, f"the {role} of edge")
        weights, times = _checked_weights(weights, len(src)), _checked_times(times, len(src))
        indptr, indices, order = coo_to_csc(src, dst, num_nodes, id_dtype(num_nodes))
        indptr = indptr.astype(offset_dtype(len(indices)), copy=False)
        weights, times = (None if array is None else array[order] for array in (weights, times))
        return cls(indptr, indices, weights=weights, times=times, is_sorted=True, validate=False)

    @classmethod
    def from_pairs(cls, src: Array, dst: Array, num_nodes: int) -> Graph:
        """Every pair as two edges, one each way; each edge once, however often its pair is given. See ``from_edges``."""
        graph = cls.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), num_nodes)
        is_first = np.ones(graph.num_edges, bool)
        is_first[1:] = graph.indices[1:] != graph.indices[:-1]
        is_first[graph.indptr[:-1][graph.in_degrees() > 0]] = True  # a column begins anew, whatever the one before ended with
        return graph.with_edges(is_first)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A square scipy sparse matrix or array; every stored entry (i, j) is an edge i -> j, whatever its value. CSC is not copied."""
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            sides = " x ".join(str(side) for side in matrix.shape)
            raise InputError(f"the matrix is {sides}: an adjacency matrix is square; pad the shorter side")
        if matrix.format in ("csc", "csr"):
            csc = matrix.tocsc()
            return cls(csc.indptr, csc.indices[: csc.indptr[-1]])  # scipy allows for unused room behind the entries
        coo = matrix.tocoo()  # since tocsc() of the other formats adds equal entries up
        return cls.from_edges(coo.row, coo.col, matrix.shape[0])

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A homogeneous ``torch_geometric.data.Data`` with ``edge_index`` (2, E)."""
        if getattr(data, "edge_index", None) is None:
            raise InputError(
                f"{type(data).__name__} has no edge_index: only a homogeneous Data with edge_index can be read; convert it first"
            )
        return cls.from_edge_index(data.edge_index, int(data.num_nodes))

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None) -> Graph:
        """Edges as PyG has them: ``edge_index`` (2, E), a row of sources and one of destinations, of NumPy or torch. See ``from_edges``."""
        edge_index = as_array(edge_index)
        if edge_index.ndim != 2 or len(edge_index) != 2:
            raise InputError(f"edge_index has shape {edge_index.shape}: it is (2, E), a row of sources and one of destinations; reshape it")
        return cls.from_edges(edge_index[0], edge_index[1], num_nodes)

    @classmethod
    def from_dgl(cls, graph: Any) -> Graph:
        """A homogeneous ``dgl.DGLGraph``."""
        if not graph.is_homogeneous:
            raise InputError(f"the DGL graph has the edge types {graph.canonical_etypes}: only one is read; pick it with graph[etype]")
        src, dst = graph.edges()
        return cls.from_edges(src.cpu().numpy(), dst.cpu().numpy(), int(graph.num_nodes()))


def read_only(array: Array) -> Array:
    """A view that cannot be written to. Kernels are compiled for such arrays once, whether they are mapped from a file or not."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def as_ids(values: Array, name: str) -> Array:
    """One-dimensional integers, contiguous; of any width, not checked for range."""
    values = np.asarray(values)
    if values.ndim != 1 or (len(values) and not is_integer(values.dtype)):
        raise InputError(
            f"{name} is a {values.dtype} array of shape {values.shape}: vertex ids are a one-dimensional integer array; convert it"
        )
    return np.ascontiguousarray(values)


def narrow_ids(indices: Array, num_nodes: int) -> Array:
    """Check before narrowing, so that a large id cannot wrap around into range."""
    wide = indices if indices.dtype == id_dtype(num_nodes) else indices.astype(np.int64, copy=False)
    check_ids(wide, num_nodes, "the source of edge")
    return wide.astype(id_dtype(num_nodes), copy=False)


def check_ids(ids: Array, num_nodes: int, what: str) -> None:
    """Refuse an id outside [0, num_nodes); ``what`` it is stands before its place in the message."""
    bad = first_out_of_range(ids, num_nodes)
    if bad >= 0:
        raise InputError(
            f"{what} {bad} is vertex {ids[bad]}, but the graph has the {num_nodes:,} vertices 0 to {num_nodes - 1}: "
            "drop the edge or state a larger num_nodes"
        )


def as_offsets(indptr: Array) -> Array:
    """At least one integer, int32 or int64."""
    indptr = np.asarray(indptr)
    if indptr.ndim != 1 or len(indptr) == 0:
        raise InputError(f"indptr has shape {indptr.shape}: it holds V + 1 offsets; an empty graph has indptr [0]")
    if not is_integer(indptr.dtype):
        raise InputError(f"indptr is a {indptr.dtype} array: offsets are integers; convert it")
    # Any other width is widened: differences of unsigned or small integers would wrap around.
    return indptr if indptr.dtype in (np.int32, np.int64) else indptr.astype(np.int64)


def _checked_weights(weights: Array | None, num_edges: int) -> Array | None:
    if weights is None:
        return None
    weights = np.asarray(weights)
    if weights.shape != (num_edges,) or weights.dtype not in (np.float32, np.float64):
        raise InputError(
            f"weights are {weights.dtype} of shape {weights.shape}: they are float32 or float64, one for each of {num_edges:,} edges; convert them"
        )
    bad = first_bad_weight(weights)
    if bad >= 0:
        raise InputError(f"the weight of edge {bad} is {weights[bad]}: weights are finite and not negative; correct it")
    return np.ascontiguousarray(weights)


def _checked_times(times: Array | None, num_edges: int) -> Array | None:
    if times is None:
        return None
    times = np.asarray(times)
    if times.shape != (num_edges,) or not is_integer(times.dtype) or times.dtype == np.uint64:
        raise InputError(
            f"times are {times.dtype} of shape {times.shape}: they are integers up to int64, one for each of {num_edges:,} edges; convert them"
        )
    return np.ascontiguousarray(times, np.int64)


def check_offsets(indptr: Array, num_edges: int) -> None:
    """Refuse offsets that do not run from 0 to ``num_edges``, or descend."""
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise InputError(f"indptr runs from {indptr[0]} to {indptr[-1]}: with {num_edges:,} edges it has to run from 0 to {num_edges}")
    falls = np.flatnonzero(np.diff(indptr) < 0)
    if len(falls):
        v = int(falls[0])
        raise InputError(
            f"indptr falls from {indptr[v]} to {indptr[v + 1]} at vertex {v}: offsets never descend; rebuild it by Graph.from_edges"
        )
