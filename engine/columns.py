"""The edges of one relation in compressed sparse column (CSC) form, and the checks of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, ids_at, is_integer, offset_dtype, read_only
from hoptrain.engine.errors import InputError, an
from hoptrain.engine.machine import check_num_nodes
from hoptrain.kernels.cpu.alias import first_bad_weight
from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range
from hoptrain.kernels.shared.philox import MAX_VERTEX

ARRAYS = ("indptr", "indices", "weights", "times", "edge_ids")


class RelationColumns:
    """A relation's E edges into N destinations in compressed sparse column (CSC) form, read-only, grouped by destination.

    Column v, ``indices[indptr[v]:indptr[v + 1]]``, holds the sources of the edges into v: the in-neighbours that a GNN layer
    aggregates. Self loops, multi-edges and isolated nodes are allowed.

    An edge has a *position*, its index in ``indices``, which samplers and their blocks use. It also has an *id*, its index in the order in which
    edges were given, which PyG and DGL objects use. ``ids_of`` and ``csc_positions`` convert between them.

    Attributes:
        indptr: (N+1,) offset of each column in ``indices``, ``indptr[N] == E``; int32 if E < 2**31, else int64 (always int64 in old files).
        indices: (E,) sources, as ids within their node type; int32 if they fit, else int64.
        weights: (E,) float32 or float64, finite and not negative, or None: the sampling weight of each edge, relative to the other edges of its column.
        times: (E,) int64, or None: the time stamp of each edge, in any unit and from any origin.
        edge_ids: (E,) the distinct id of the edge at each position, int32 if they fit, else int64; None if ids equal positions.
        num_src: number of nodes of the source type.
    """

    __slots__ = ("_is_sorted", "edge_ids", "indices", "indptr", "num_src", "times", "weights")

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        num_src: int,
        *,
        weights: Array | None = None,
        times: Array | None = None,
        edge_ids: Array | None = None,
        is_sorted: bool | None = None,
        validate: bool = True,
    ) -> None:
        """Store CSC arrays with sources in [0, num_src), without a copy if their dtypes already fit. ``Graph`` describes the arguments.

        Raises:
            InputError: an array has a wrong dtype or length, offsets descend, or a source is outside [0, num_src).
        """
        self._take(indptr, indices, num_src, weights, times, edge_ids, is_sorted, validate)

    def _take(
        self,
        indptr: Array,
        indices: Array,
        num_src: int | None,
        weights: Array | None,
        times: Array | None,
        edge_ids: Array | None,
        is_sorted: bool | None,
        validate: bool = False,
    ) -> Self:
        if validate:
            indptr, indices, weights, times, edge_ids = _checked_columns(indptr, indices, num_src, weights, times, edge_ids)
        self.indptr: Array = read_only(indptr)
        self.indices: Array = read_only(indices)
        self.weights: Array | None = None if weights is None else read_only(weights)
        self.times: Array | None = None if times is None else read_only(times)
        self.edge_ids: Array | None = None if edge_ids is None else read_only(edge_ids)
        self.num_src: int = len(indptr) - 1 if num_src is None else num_src
        self._is_sorted = is_sorted
        return self

    def __repr__(self) -> str:
        return f"RelationColumns(num_src={self.num_src:,}, num_dst={self.num_nodes:,}, num_edges={self.num_edges:,})"

    @property
    def num_nodes(self) -> int:
        """Number of destination nodes, N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges, E."""
        return len(self.indices)

    @property
    def is_sorted(self) -> bool:
        """True if the sources ascend within every column; checked at first use if not given."""
        if self._is_sorted is None:
            self._is_sorted = bool(columns_sorted(self.indptr, self.indices))
        return self._is_sorted

    def in_degrees(self, dtype: type[np.generic] = np.int64) -> Array:
        """Return the number of edges into each node, (N,) of ``dtype``."""
        return np.subtract(self.indptr[1:], self.indptr[:-1], out=np.empty(self.num_nodes, dtype), casting="unsafe")

    def num_edge_ids(self) -> int:
        """Return the largest edge id plus one."""
        return self.num_edges if self.edge_ids is None else int(self.edge_ids.max(initial=-1)) + 1

    def destinations(self) -> Array:
        """Return the destination of the edge at each position, (E,) int64. ``indices`` has the sources."""
        return np.repeat(np.arange(self.num_nodes), self.in_degrees())

    def ids_of(self, places: Array) -> Array:
        """Return the ids of the edges at the positions ``places`` (N,), such as a block's ``edge_ids``. -1 (no edge) stays -1."""
        return ids_at(self.edge_ids, places)

    def csc_positions(self, ids: Array) -> Array:
        """Return the positions (N,) int64 of the edges with the given ids (N,). This takes O(E) time, unless ids equal positions.

        Raises:
            InputError: an id belongs to no edge.
        """
        wanted, inverse = np.unique(np.asarray(ids), return_inverse=True)
        if self.edge_ids is None:
            places = np.where((wanted >= 0) & (wanted < self.num_edges), wanted, -1)
        else:
            places = np.full(len(wanted), -1, np.int64)
            found = np.flatnonzero(np.isin(self.edge_ids, wanted))
            places[np.searchsorted(wanted, self.edge_ids[found])] = found
        if (places < 0).any():
            raise InputError(f"edge {wanted[places < 0][0]} does not exist: edge ids are in [0, {self.num_edge_ids()}); leave it out")
        in_order: Array = places[inverse].astype(np.int64, copy=False)
        return in_order

    def with_edges(self, is_kept: Array) -> Self:
        """Return a copy with a subset of the edges, which keep their ids, weights and times.

        Args:
            is_kept: (E,) bool: True for each edge to keep.
        """
        if is_kept.shape != (self.num_edges,) or is_kept.dtype != bool:
            raise InputError(
                f"is_kept is {is_kept.dtype} of shape {is_kept.shape}: it must be one bool for each of {self.num_edges:,} edges; give a mask"
            )
        places = np.flatnonzero(is_kept)
        indptr = np.concatenate([[0], np.cumsum(is_kept)])[self.indptr].astype(offset_dtype(len(places)))
        is_sorted = self._is_sorted or None  # None if unknown, since a subset of unsorted edges may be sorted
        return self._at(places, indptr, self.indices[places], self.num_src, is_sorted)

    def without_repeats(self) -> Self:
        """Return a copy without parallel edges, keeping the first of each. Columns must be sorted."""
        is_first = np.ones(self.num_edges, bool)
        is_first[1:] = self.indices[1:] != self.indices[:-1]
        # a column's first edge counts as new, even if the previous column ends with the same source
        is_first[self.indptr[:-1][self.in_degrees() > 0]] = True
        return self.with_edges(is_first)

    def reversed(self) -> Self:
        """Return the reversed edges, with their ids, weights and times."""
        ends = self.destinations(), self.indices.astype(np.int64)
        indptr, indices, places = coo_to_csc(*ends, max(self.num_nodes, self.num_src), id_dtype(self.num_nodes))
        return self._at(places, indptr[: self.num_src + 1].astype(offset_dtype(len(indices)), copy=False), indices, self.num_nodes, True)

    def _at(self, places: Array, indptr: Array, indices: Array, num_src: int, is_sorted: bool | None) -> Self:
        """Return new columns with the edges at the CSC positions ``places``, and with the weights, times and ids of these edges."""
        weights, times = (None if array is None else array[places] for array in (self.weights, self.times))
        ids = self.ids_of(places).astype(id_dtype(self.num_edges) if self.edge_ids is None else self.edge_ids.dtype, copy=False)
        return type(self).__new__(type(self))._take(indptr, indices, num_src, weights, times, ids, is_sorted)

    def in_memory(self) -> Self:
        """Return a copy in this process's memory, in huge pages if the system grants NumPy's request for them.

        Use it for sampling within one process (``num_workers=0``, or threads): sampling from a mapped file takes about 25 % longer, because its pages
        are small. The advantages of a mapped file are that all processes of a machine share it, and that nothing is read before the first batch.
        """
        arrays = {name: np.array(array) for name, array in self.arrays().items()}
        arrays["indptr"] = arrays["indptr"].astype(offset_dtype(self.num_edges), copy=False)
        return self.from_arrays(arrays, self._is_sorted, num_src=self.num_src)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are not None by their file names, as input for ``from_arrays``."""
        arrays: dict[str, Array | None] = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], is_sorted: bool | None, validate: bool = False, num_src: int | None = None) -> Self:
        """Build columns from the result of ``arrays()``; further entries are ignored. ``num_src`` is by default the number of columns.

        Raises:
            InputError: with ``validate``: the arrays are invalid, or ``is_sorted`` is True and a column is not sorted.
        """
        weights, times, edge_ids = (arrays.get(name) for name in ("weights", "times", "edge_ids"))
        made = cls.__new__(cls)._take(arrays["indptr"], arrays["indices"], num_src, weights, times, edge_ids, is_sorted, validate)
        if validate and is_sorted and not columns_sorted(made.indptr, made.indices):
            raise InputError(
                "is_sorted is true in the header, but sources do not ascend within each column: the arrays must match the header; convert the data again"
            )
        return made

    @classmethod
    def from_ends(cls, src: Array, dst: Array, num_src: int, num_dst: int, *, weights: Array | None, times: Array | None) -> Self:
        """Build sorted columns from edges src[i] -> dst[i] with ids i. Parallel edges are kept in input order.

        Raises:
            InputError: lengths differ, ids are not integers, there are too many nodes, or an edge has a node that does not exist.
        """
        src, dst = wide_ids(src, "src"), wide_ids(dst, "dst")
        if len(src) != len(dst):
            raise InputError(
                f"src has {len(src):,} entries and dst has {len(dst):,}: each edge needs one of each; give arrays of equal length"
            )
        check_num_nodes(max(num_src, num_dst), MAX_VERTEX)
        check_ids(src, num_src, "the source of edge")
        check_ids(dst, num_dst, "the destination of edge")
        weights, times = _checked_weights(weights, len(src)), _checked_times(times, len(src))
        indptr, indices, order = coo_to_csc(src, dst, max(num_src, num_dst), id_dtype(num_src))
        indptr = indptr[: num_dst + 1].astype(offset_dtype(len(indices)), copy=False)
        weights, times = (None if array is None else array[order] for array in (weights, times))
        edge_ids = None if (order[1:] > order[:-1]).all() else order.astype(id_dtype(len(order)), copy=False)
        return cls.__new__(cls)._take(indptr, indices, num_src, weights, times, edge_ids, True)


def _checked_columns(
    indptr: Array, indices: Array, num_src: int | None, weights: Array | None, times: Array | None, edge_ids: Array | None
) -> tuple[Array, Array, Array | None, Array | None, Array | None]:
    """Return validated indptr, indices, weights, times and edge ids in the dtypes that a graph stores."""
    indptr, indices = as_offsets(indptr), as_ids(indices, "indices")
    check_offsets(indptr, len(indices))
    indices = _narrow_ids(indices, len(indptr) - 1 if num_src is None else num_src)
    weights, times = _checked_weights(weights, len(indices)), _checked_times(times, len(indices))
    edge_ids = None if edge_ids is None else _checked_edge_ids(edge_ids, len(indices))
    return indptr.astype(offset_dtype(len(indices)), copy=False), indices, weights, times, edge_ids


def as_ids(values: Array, name: str) -> Array:
    """Return node ids as a contiguous one-dimensional integer array of any width. The range is not checked."""
    values = np.asarray(values)
    if values.ndim != 1 or (len(values) and not is_integer(values.dtype)):
        raise InputError(
            f"{name} is {an(values.dtype)} array of shape {values.shape}: node ids must be a one-dimensional integer array; convert it"
        )
    return np.ascontiguousarray(values)


def wide_ids(values: Array, name: str) -> Array:
    """Return node ids as a contiguous one-dimensional int64 array. Raise InputError if an id does not fit."""
    return _as_int64(as_ids(values, name), name)


def _as_int64(ids: Array, name: str) -> Array:
    if ids.dtype == np.uint64 and ids.max(initial=0) > np.iinfo(np.int64).max:  # such ids would become negative as int64
        bad = int(ids.argmax())
        raise InputError(f"{name}[{bad}] is node {ids[bad]}: node ids must be below 2**63; drop it")
    return ids.astype(np.int64, copy=False)


def _narrow_ids(indices: Array, num_nodes: int) -> Array:
    # check before narrowing, so that a large id cannot wrap around into the valid range
    wide = indices if indices.dtype == id_dtype(num_nodes) else _as_int64(indices, "indices")
    check_ids(wide, num_nodes, "the source of edge")
    return wide.astype(id_dtype(num_nodes), copy=False)


def check_ids(ids: Array, num_nodes: int, what: str) -> None:
    """Raise InputError if an id is outside [0, num_nodes). The message names the id by ``what`` and its index."""
    bad = first_out_of_range(ids, num_nodes)
    if bad >= 0:
        raise InputError(
            f"{what} {bad} is node {ids[bad]}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1}; "
            "drop the edge or give a larger num_nodes"
        )


def as_offsets(indptr: Array) -> Array:
    """Return CSC offsets as int32 or int64. Raise InputError if ``indptr`` is empty or does not hold integers."""
    indptr = np.asarray(indptr)
    if indptr.ndim != 1 or len(indptr) == 0:
        raise InputError(f"indptr has shape {indptr.shape}: it must hold V + 1 offsets; for an empty graph give [0]")
    if not is_integer(indptr.dtype):
        raise InputError(f"indptr is {an(indptr.dtype)} array: offsets must be integers; convert it")
    # other integer dtypes are widened, because differences of unsigned or small integers would wrap around
    return indptr if indptr.dtype in (np.int32, np.int64) else indptr.astype(np.int64)


def _checked_weights(weights: Array | None, num_edges: int) -> Array | None:
    """Return edge weights (E,) as a contiguous array. Raise InputError if they are not finite, non-negative floats, one for each edge."""
    if weights is None:
        return None
    weights = np.asarray(weights)
    if weights.shape != (num_edges,) or weights.dtype not in (np.float32, np.float64):
        raise InputError(
            f"weights are {weights.dtype} of shape {weights.shape}: they must be float32 or float64, one for each of {num_edges:,} edges; convert them"
        )
    bad = first_bad_weight(weights)
    if bad >= 0:
        raise InputError(
            f"the weight of edge {bad} is {weights[bad]}: weights must be finite and 0 or more; drop the edge or give it a weight of 0 or more"
        )
    return np.ascontiguousarray(weights)


def _checked_times(times: Array | None, num_edges: int) -> Array | None:
    """Return edge times (E,) as int64. Raise InputError if they are not one integer for each edge."""
    if times is None:
        return None
    times = np.asarray(times)
    if times.shape != (num_edges,) or not is_integer(times.dtype) or times.dtype == np.uint64:
        raise InputError(
            f"times are {times.dtype} of shape {times.shape}: they must be integers that fit int64, one for each of {num_edges:,} edges; convert them"
        )
    return np.ascontiguousarray(times, np.int64)


def _checked_edge_ids(edge_ids: Array, num_edges: int) -> Array:
    """Return edge ids (E,) as int32 if they fit, else int64. Raise InputError if they are negative or not distinct."""
    edge_ids = np.asarray(edge_ids)
    if edge_ids.shape != (num_edges,) or (num_edges and not is_integer(edge_ids.dtype)):
        raise InputError(
            f"edge_ids are {edge_ids.dtype} of shape {edge_ids.shape}: they must be integers, one for each of {num_edges:,} edges; convert them"
        )
    ids = np.sort(edge_ids)
    wrong = np.r_[ids[:1][ids[:1] < 0], ids[1:][ids[1:] == ids[:-1]]]
    if len(wrong):
        raise InputError(f"{wrong[0]} in edge_ids: edge ids must be distinct and 0 or more; leave edge_ids out to use positions as ids")
    return np.ascontiguousarray(edge_ids, id_dtype(int(ids[-1]) + 1 if len(ids) else 0))


def check_offsets(indptr: Array, num_edges: int) -> None:
    """Raise InputError if offsets do not run from 0 to ``num_edges``, or if they descend."""
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise InputError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}: with {num_edges:,} edges it must run from 0 to {num_edges}; rebuild it with Graph.from_edges"
        )
    falls = np.flatnonzero(np.diff(indptr) < 0)
    if len(falls):
        v = int(falls[0])
        raise InputError(
            f"indptr falls from {indptr[v]} to {indptr[v + 1]} at node {v}: offsets must never descend; rebuild it with Graph.from_edges"
        )
