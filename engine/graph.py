"""A graph as compressed columns (CSC)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_weights, id_dtype, ids_at, is_integer, offset_dtype, places_at, read_only
from hoptrain.engine.errors import InputError, some_of
from hoptrain.engine.machine import check_num_nodes
from hoptrain.engine.store import checking, complete_header, create_new_folder, open_folder
from hoptrain.kernels.cpu.alias import first_bad_weight
from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range
from hoptrain.kernels.shared.philox import MAX_VERTEX

KIND = "graph"


class Graph:
    """A directed graph of V vertices and E edges, read-only, stored by destination.

    Column v, ``indices[indptr[v]:indptr[v + 1]]``, holds the sources of the edges into v: its in-neighbours, those that a GNN layer
    aggregates. Self loops, multi-edges and isolated vertices are allowed.

    An edge has a *place*, where it stands in ``indices``, by which samplers and their blocks name it; and an *id*, its number in the order
    of edges that the graph was made from, by which PyG's and DGL's objects name it. ``ids_of`` and ``places_of`` lead from one to the other.

    Attributes:
        indptr: (V+1,) where each column begins, ``indptr[V] == E``; int32 if E < 2**31 else int64 (files of older versions: int64).
        indices: (E,) int32 if V < 2**31 else int64, source vertices.
        weights: (E,) float32 or float64, finite and not negative, or None: how likely an edge is drawn, relative to others of its column.
        times: (E,) int64, or None: when each edge came to be, in any unit and from any origin.
        edge_ids: (E,) the id of the edge at each place, all different, int32 where they fit, else int64; None where an edge's place is its id.
        is_sorted: whether the sources ascend within every column.

    Examples:
        >>> from hoptrain import Graph
        >>> graph = Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 1])  # 0 -> 1, 1 -> 2, 2 -> 0, 2 -> 1
        >>> graph
        Graph(num_nodes=3, num_edges=4, is_sorted=True)
        >>> graph.indices[graph.indptr[1] : graph.indptr[2]]  # the in-neighbours of vertex 1
        array([0, 2], dtype=int32)
        >>> graph.edge_ids  # the edge at each place, by its number above
        array([2, 0, 3, 1], dtype=int32)
    """

    __slots__ = ("edge_ids", "indices", "indptr", "is_sorted", "times", "weights")

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
            edge_ids: (E,) distinct integers, not negative, one for each entry of ``indices``; by default an entry's place is its edge's id.
            is_sorted: state it to save the check; None looks.
            validate: False only for arrays that were validated before (O(E) otherwise).

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a vertex that does not exist.
        """
        if validate:
            indptr, indices, weights, times, edge_ids = checked_columns(indptr, indices, None, weights, times, edge_ids)
        self.indptr: Array = read_only(indptr)
        self.indices: Array = read_only(indices)
        self.weights: Array | None = None if weights is None else read_only(weights)
        self.times: Array | None = None if times is None else read_only(times)
        self.edge_ids: Array | None = None if edge_ids is None else read_only(edge_ids)
        self.is_sorted: bool = bool(columns_sorted(self.indptr, self.indices)) if is_sorted is None else is_sorted

    @property
    def num_nodes(self) -> int:
        """V."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.indices)

    def in_degrees(self, dtype: type[np.generic] = np.int64) -> Array:
        """(V,) of ``dtype``: how many edges enter each vertex."""
        return np.subtract(self.indptr[1:], self.indptr[:-1], out=np.empty(self.num_nodes, dtype), casting="unsafe")

    def destinations(self) -> Array:
        """(E,) int64: the vertex that each edge enters; its source stands in ``indices``."""
        return np.repeat(np.arange(self.num_nodes), self.in_degrees())

    def ids_of(self, places: Array) -> Array:
        """The ids of the edges at ``places`` (N,), such as a block's ``edge_ids``; -1, which is no edge of the graph, stays -1."""
        return ids_at(self.edge_ids, places)

    def places_of(self, ids: Array) -> Array:
        """The places of the edges with ``ids`` (N,) integers: (N,) int64. Goes once through the graph's edges, unless places are ids.

        Raises:
            InputError: the graph has no edge of such an id.
        """
        return places_at(self, ids)

    def with_edges(self, is_kept: Array) -> Graph:
        """The graph of the same vertices with some of the edges, their weights, times and ids: each keeps the id that it had.

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
        edge_ids = self.ids_of(np.flatnonzero(is_kept)).astype(id_dtype(self.num_edges) if self.edge_ids is None else self.edge_ids.dtype)
        is_sorted = self.is_sorted or None  # of edges in no order some may be in order
        return Graph(indptr, indices, weights=weights, times=times, edge_ids=edge_ids, is_sorted=is_sorted, validate=False)

    def without_repeats(self) -> Graph:
        """With one of the edges from a vertex to another, the first; of a graph whose columns are sorted."""
        is_first = np.ones(self.num_edges, bool)
        is_first[1:] = self.indices[1:] != self.indices[:-1]
        is_first[self.indptr[:-1][self.in_degrees() > 0]] = True  # a column begins anew, whatever the one before ended with
        return self.with_edges(is_first)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, is_sorted={self.is_sorted})"

    def in_memory(self) -> Graph:
        """The same graph in memory of this process, in huge pages where the system grants them (NumPy asks for them).

        Sampling from a mapped file takes about a quarter longer, since its pages are small; but a mapping is shared by all processes of a
        machine, and nothing has to be read before the first batch. For sampling within one process (``num_workers=0``, or threads).
        """
        arrays = {name: np.array(array) for name, array in self.arrays().items()}
        return Graph.from_arrays(arrays | {"indptr": self.indptr.astype(offset_dtype(self.num_edges))}, self.is_sorted)

    def save(self, path: str | Path) -> None:
        """Write the graph alone as a folder; ``path`` must not exist yet. Opened again with ``Graph.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(num_nodes=self.num_nodes, num_edges=self.num_edges, is_sorted=self.is_sorted)

    def arrays(self) -> dict[str, Array]:
        """The arrays that there are, by the name of their files; ``from_arrays`` makes a graph of them again."""
        arrays = {name: getattr(self, name) for name in ("indptr", "indices", "weights", "times", "edge_ids")}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], is_sorted: bool, validate: bool = False) -> Graph:
        """A graph from ``arrays()``, which may hold others too.

        Raises:
            InputError: with ``validate``, as the constructor; or the columns are stated to be sorted and are not.
        """
        options = {name: arrays.get(name) for name in ("weights", "times", "edge_ids")}
        made = cls(arrays["indptr"], arrays["indices"], **options, is_sorted=is_sorted, validate=validate)
        if validate and is_sorted and not columns_sorted(made.indptr, made.indices):
            raise InputError("sources do not ascend within each column, though the header says so: convert the data again")
        return made

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
        """Edges src[i] -> dst[i], whose ids are i; columns come out sorted. Copies of an edge stay, in the order of the input.

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
        check_num_nodes(num_nodes, MAX_VERTEX)
        for ids, role in ((src, "source"), (dst, "destination")):
            check_ids(ids, num_nodes, f"the {role} of edge")
        weights, times = checked_weights(weights, len(src)), checked_times(times, len(src))
        indptr, indices, order = coo_to_csc(src, dst, num_nodes, id_dtype(num_nodes))
        indptr = indptr.astype(offset_dtype(len(indices)), copy=False)
        weights, times = (None if array is None else array[order] for array in (weights, times))
        edge_ids = None if (order[1:] > order[:-1]).all() else order.astype(id_dtype(len(order)), copy=False)
        return cls(indptr, indices, weights=weights, times=times, edge_ids=edge_ids, is_sorted=True, validate=False)

    @classmethod
    def from_pairs(cls, src: Array, dst: Array, num_nodes: int) -> Graph:
        """Each of P pairs as two edges: of pair i, src[i] -> dst[i] has the id i, and dst[i] -> src[i] the id P + i.

        An edge that several pairs make is kept once, with the least of its ids; the others are no edge's. See ``from_edges``.
        """
        return cls.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), num_nodes).without_repeats()

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A square scipy sparse matrix or array; every stored entry (i, j) is an edge i -> j, whatever its value. CSC is not copied.

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
        """A homogeneous ``torch_geometric.data.Data`` with ``edge_index`` (2, E), whose columns the ids count; ``edge_weight`` becomes the weights.

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
            raise InputError(f"data has no attribute {time_attr!r}: it has {some_of(sorted(data.keys()))}; name one of these")
        if time_attr is not None and data.is_node_attr(time_attr):
            times = as_array(times).take(as_array(edge_index)[0], mode="clip")  # from_edges refuses ids of other nodes
        return cls.from_edge_index(edge_index, int(data.num_nodes), weights=getattr(data, "edge_weight", None), times=times)

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None, *, weights: Any = None, times: Any = None) -> Graph:
        """Edges as PyG has them: ``edge_index`` (2, E), a row of sources and one of destinations, of NumPy or torch. See ``from_edges``.

        ``weights`` (E,) or (E, 1) may be of any real dtype; of others than float32 and float64 they become float32.
        """
        edge_index = as_array(edge_index)
        if edge_index.ndim != 2 or len(edge_index) != 2:
            raise InputError(f"edge_index has shape {edge_index.shape}: it is (2, E), a row of sources and one of destinations; reshape it")
        weights, times = None if weights is None else as_weights(weights), None if times is None else as_array(times)
        return cls.from_edges(edge_index[0], edge_index[1], num_nodes, weights=weights, times=times)

    @classmethod
    def from_dgl(cls, graph: Any) -> Graph:
        """A homogeneous ``dgl.DGLGraph``; ids are DGL's. Weights have no name of their own there: give them to ``from_edges``."""
        if not graph.is_homogeneous:
            raise InputError(f"the DGL graph has the edge types {graph.canonical_etypes}: only one is read; pick it with graph[etype]")
        src, dst = graph.edges()
        return cls.from_edges(src.cpu().numpy(), dst.cpu().numpy(), int(graph.num_nodes()))


class PartialGraph(Graph):
    """Some columns of a graph, the others empty. Unlike a whole graph it may lack an edge of positive weight."""

    __slots__ = ()


def checked_columns(
    indptr: Array, indices: Array, num_src: int | None, weights: Array | None, times: Array | None, edge_ids: Array | None
) -> tuple[Array, Array, Array | None, Array | None, Array | None]:
    """Columns, and what their edges have, as a graph keeps them; sources are in [0, num_src), by default as many as there are columns."""
    indptr, indices = as_offsets(indptr), as_ids(indices, "indices")
    check_offsets(indptr, len(indices))
    indices = narrow_ids(indices, len(indptr) - 1 if num_src is None else num_src)
    weights, times = checked_weights(weights, len(indices)), checked_times(times, len(indices))
    edge_ids = None if edge_ids is None else checked_edge_ids(edge_ids, len(indices))
    return indptr.astype(offset_dtype(len(indices)), copy=False), indices, weights, times, edge_ids


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


def checked_weights(weights: Array | None, num_edges: int) -> Array | None:
    """Weights (E,) as a graph keeps them; refused if not finite floats, not negative, one for each edge."""
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


def checked_times(times: Array | None, num_edges: int) -> Array | None:
    """Times (E,) int64, or None; refused if not one integer for each edge."""
    if times is None:
        return None
    times = np.asarray(times)
    if times.shape != (num_edges,) or not is_integer(times.dtype) or times.dtype == np.uint64:
        raise InputError(
            f"times are {times.dtype} of shape {times.shape}: they are integers up to int64, one for each of {num_edges:,} edges; convert them"
        )
    return np.ascontiguousarray(times, np.int64)


def checked_edge_ids(edge_ids: Array, num_edges: int) -> Array:
    """Distinct ids (E,), not negative, as narrow as they can be; others are refused."""
    edge_ids = np.asarray(edge_ids)
    if edge_ids.shape != (num_edges,) or (num_edges and not is_integer(edge_ids.dtype)):
        raise InputError(
            f"edge_ids are {edge_ids.dtype} of shape {edge_ids.shape}: they are integers, one for each of {num_edges:,} edges; convert them"
        )
    ids = np.sort(edge_ids)
    wrong = np.r_[ids[:1][ids[:1] < 0], ids[1:][ids[1:] == ids[:-1]]]
    if len(wrong):
        raise InputError(
            f"{wrong[0]} in edge_ids: they are not negative, and no two edges share one; leave them out to count edges by place"
        )
    return np.ascontiguousarray(edge_ids, id_dtype(int(ids[-1]) + 1 if len(ids) else 0))


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
