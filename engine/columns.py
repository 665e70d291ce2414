"""The edges of one relation as compressed columns (CSC): what a graph is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, ids_at, is_integer, offset_dtype, read_only
from hoptrain.engine.errors import InputError
from hoptrain.engine.machine import check_num_nodes
from hoptrain.kernels.cpu.alias import first_bad_weight
from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range
from hoptrain.kernels.shared.philox import MAX_VERTEX

ARRAYS = ("indptr", "indices", "weights", "times", "edge_ids")


class RelationColumns:
    """The E edges of one relation into N destinations, read-only, stored by destination.

    Column v, ``indices[indptr[v]:indptr[v + 1]]``, holds the sources of the edges into v: its in-neighbours, those that a GNN layer
    aggregates. Self loops, multi-edges and isolated nodes are allowed.

    An edge has a *position*, where it stands in ``indices``, by which samplers and their blocks name it; and an *id*, its number in the order
    of edges that the graph was made from, by which PyG's and DGL's objects name it. ``ids_of`` and ``csc_positions`` convert between them.

    Attributes:
        indptr: (N+1,) where each column begins, ``indptr[N] == E``; int32 if E < 2**31 else int64 (files of older versions: int64).
        indices: (E,) sources, ids within their type; int32 where they fit, else int64.
        weights: (E,) float32 or float64, finite and not negative, or None: how likely an edge is drawn, relative to others of its column.
        times: (E,) int64, or None: when each edge came to be, in any unit and from any origin.
        edge_ids: (E,) the id of the edge at each position, all different, int32 where they fit, else int64; None where an edge's position is its id.
        num_src: number of nodes of the sources' type.
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
        """Take CSC arrays (without a copy where dtypes allow) with sources in [0, num_src); arguments as of ``Graph``.

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a node that does not exist.
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
        """N: nodes that have a column."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.indices)

    @property
    def is_sorted(self) -> bool:
        """Whether the sources ascend within every column; looked up once where it was not stated."""
        if self._is_sorted is None:
            self._is_sorted = bool(columns_sorted(self.indptr, self.indices))
        return self._is_sorted

    def in_degrees(self, dtype: type[np.generic] = np.int64) -> Array:
        """Return how many edges enter each node, (N,) of ``dtype``."""
        return np.subtract(self.indptr[1:], self.indptr[:-1], out=np.empty(self.num_nodes, dtype), casting="unsafe")

    def num_edge_ids(self) -> int:
        """Return one more than the largest id of an edge."""
        return self.num_edges if self.edge_ids is None else int(self.edge_ids.max(initial=-1)) + 1

    def destinations(self) -> Array:
        """Return the node that each edge enters, (E,) int64; its source stands in ``indices``."""
        return np.repeat(np.arange(self.num_nodes), self.in_degrees())

    def ids_of(self, places: Array) -> Array:
        """Return the ids of the edges at ``places`` (N,), such as a block's ``edge_ids``; -1, which is no edge of the graph, stays -1."""
        return ids_at(self.edge_ids, places)

    def csc_positions(self, ids: Array) -> Array:
        """Return the positions of the edges with ``ids`` (N,) integers, (N,) int64. Goes once through the edges, unless positions are ids.

        Raises:
            InputError: the graph has no edge of such an id.
        """
        wanted, inverse = np.unique(np.asarray(ids), return_inverse=True)
        if self.edge_ids is None:
            places = np.where((wanted >= 0) & (wanted < self.num_edges), wanted, -1)
        else:
            places = np.full(len(wanted), -1, np.int64)
            found = np.flatnonzero(np.isin(self.edge_ids, wanted))
            places[np.searchsorted(wanted, self.edge_ids[found])] = found
        if (places < 0).any():
            raise InputError(f"edge {wanted[places < 0][0]} does not exist: {self} has no edge of this id; correct it or leave it out")
        in_order: Array = places[inverse].astype(np.int64, copy=False)
        return in_order

    def with_edges(self, is_kept: Array) -> Self:
        """Return the columns with some of the edges, their weights, times and ids: each keeps the id that it had.

        Args:
            is_kept: (E,) bool.
        """
        if is_kept.shape != (self.num_edges,) or is_kept.dtype != bool:
            raise InputError(
                f"is_kept is {is_kept.dtype} of shape {is_kept.shape}: it is one bool for each of {self.num_edges:,} edges; give a mask"
            )
        places = np.flatnonzero(is_kept)
        indptr = np.concatenate([[0], np.cumsum(is_kept)])[self.indptr].astype(offset_dtype(len(places)))
        is_sorted = self._is_sorted or None  # of edges in no order some may be in order
        return self._at(places, indptr, self.indices[places], self.num_src, is_sorted)

    def without_repeats(self) -> Self:
        """Return the columns without parallel edges, keeping the first of each. Columns must be sorted."""
        is_first = np.ones(self.num_edges, bool)
        is_first[1:] = self.indices[1:] != self.indices[:-1]
        is_first[self.indptr[:-1][self.in_degrees() > 0]] = True  # whatever the previous column ends with
        return self.with_edges(is_first)

    def reversed(self) -> Self:
        """Return the same edges turned round, with their ids, weights and times."""
        ends = self.destinations(), self.indices.astype(np.int64)
        indptr, indices, places = coo_to_csc(*ends, max(self.num_nodes, self.num_src), id_dtype(self.num_nodes))
        return self._at(places, indptr[: self.num_src + 1].astype(offset_dtype(len(indices)), copy=False), indices, self.num_nodes, True)

    def _at(self, places: Array, indptr: Array, indices: Array, num_src: int, is_sorted: bool | None) -> Self:
        """Return new columns of the edges at ``places``, with their weights, times and ids."""
        weights, times = (None if array is None else array[places] for array in (self.weights, self.times))
        ids = self.ids_of(places).astype(id_dtype(self.num_edges) if self.edge_ids is None else self.edge_ids.dtype, copy=False)
        return type(self).__new__(type(self))._take(indptr, indices, num_src, weights, times, ids, is_sorted)

    def in_memory(self) -> Self:
        """Return the same columns in memory of this process, in huge pages where the system grants them (NumPy asks for them).

        Sampling from a mapped file takes about a quarter longer, since its pages are small; but a mapping is shared by all processes of a
        machine, and nothing has to be read before the first batch. For sampling within one process (``num_workers=0``, or threads).
        """
        arrays = {name: np.array(array) for name, array in self.arrays().items()}
        arrays["indptr"] = arrays["indptr"].astype(offset_dtype(self.num_edges), copy=False)
        return self.from_arrays(arrays, self._is_sorted, num_src=self.num_src)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that there are, by the name of their files; ``from_arrays`` makes columns of them again."""
        arrays: dict[str, Array | None] = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], is_sorted: bool | None, validate: bool = False, num_src: int | None = None) -> Self:
        """Make columns of ``arrays()``, which may hold others too; by default there are as many sources as columns.

        Raises:
            InputError: with ``validate``, as the constructor; or the columns are stated to be sorted and are not.
        """
        weights, times, edge_ids = (arrays.get(name) for name in ("weights", "times", "edge_ids"))
        made = cls.__new__(cls)._take(arrays["indptr"], arrays["indices"], num_src, weights, times, edge_ids, is_sorted, validate)
        if validate and is_sorted and not columns_sorted(made.indptr, made.indices):
            raise InputError("sources do not ascend within each column, though the header says so: convert the data again")
        return made

    @classmethod
    def from_ends(cls, src: Array, dst: Array, num_src: int, num_dst: int, *, weights: Array | None, times: Array | None) -> Self:
        """Make columns of edges src[i] -> dst[i], whose ids are i; columns come out sorted. Parallel edges stay, in the order of the input.

        Raises:
            InputError: lengths differ, ids are no integers, there are too many nodes, or an edge names a node that does not exist.
        """
        src, dst = wide_ids(src, "src"), wide_ids(dst, "dst")
        if len(src) != len(dst):
            raise InputError(
                f"src has {len(src):,} entries and dst has {len(dst):,}: an edge needs one of each; give arrays of equal length"
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
    """Return columns, and what their edges have, as a graph keeps them; by default there are as many sources as columns."""
    indptr, indices = as_offsets(indptr), as_ids(indices, "indices")
    check_offsets(indptr, len(indices))
    indices = _narrow_ids(indices, len(indptr) - 1 if num_src is None else num_src)
    weights, times = _checked_weights(weights, len(indices)), _checked_times(times, len(indices))
    edge_ids = None if edge_ids is None else _checked_edge_ids(edge_ids, len(indices))
    return indptr.astype(offset_dtype(len(indices)), copy=False), indices, weights, times, edge_ids


def as_ids(values: Array, name: str) -> Array:
    """Return one-dimensional integers, contiguous; of any width, not checked for range."""
    values = np.asarray(values)
    if values.ndim != 1 or (len(values) and not is_integer(values.dtype)):
        raise InputError(
            f"{name} is a {values.dtype} array of shape {values.shape}: node ids are a one-dimensional integer array; convert it"
        )
    return np.ascontiguousarray(values)


def wide_ids(values: Array, name: str) -> Array:
    """Return ``as_ids`` as int64."""
    return as_ids(values, name).astype(np.int64, copy=False)


def _narrow_ids(indices: Array, num_nodes: int) -> Array:
    # checked before it is narrowed, so that a large id cannot wrap around into range
    wide = indices if indices.dtype == id_dtype(num_nodes) else indices.astype(np.int64, copy=False)
    check_ids(wide, num_nodes, "the source of edge")
    return wide.astype(id_dtype(num_nodes), copy=False)


def check_ids(ids: Array, num_nodes: int, what: str) -> None:
    """Refuse an id outside [0, num_nodes); ``what`` it is stands before its position in the message."""
    bad = first_out_of_range(ids, num_nodes)
    if bad >= 0:
        raise InputError(
            f"{what} {bad} is node {ids[bad]}, but the graph has the {num_nodes:,} nodes 0 to {num_nodes - 1}: "
            "drop the edge or state a larger num_nodes"
        )


def as_offsets(indptr: Array) -> Array:
    """Return offsets as int32 or int64; refuse none at all, and others than integers."""
    indptr = np.asarray(indptr)
    if indptr.ndim != 1 or len(indptr) == 0:
        raise InputError(f"indptr has shape {indptr.shape}: it holds V + 1 offsets; an empty graph has indptr [0]")
    if not is_integer(indptr.dtype):
        raise InputError(f"indptr is a {indptr.dtype} array: offsets are integers; convert it")
    # Any other width is widened: differences of unsigned or small integers would wrap around.
    return indptr if indptr.dtype in (np.int32, np.int64) else indptr.astype(np.int64)


def _checked_weights(weights: Array | None, num_edges: int) -> Array | None:
    """Return weights (E,) as a graph keeps them; refuse others than finite floats, not negative, one for each edge."""
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
    """Return times (E,) as int64, or None; refuse others than one integer for each edge."""
    if times is None:
        return None
    times = np.asarray(times)
    if times.shape != (num_edges,) or not is_integer(times.dtype) or times.dtype == np.uint64:
        raise InputError(
            f"times are {times.dtype} of shape {times.shape}: they are integers up to int64, one for each of {num_edges:,} edges; convert them"
        )
    return np.ascontiguousarray(times, np.int64)


def _checked_edge_ids(edge_ids: Array, num_edges: int) -> Array:
    """Return distinct ids (E,), not negative, as narrow as they can be; refuse others."""
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
            f"indptr falls from {indptr[v]} to {indptr[v + 1]} at node {v}: offsets never descend; rebuild it by Graph.from_edges"
        )
