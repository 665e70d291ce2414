"""The folder of a partitioned data set: the data that all machines have, and the feature rows of each partition.

``graph`` is a data set without features: edges, labels and splits. ``part-0`` to ``part-(P-1)`` have the feature rows of their nodes by ascending id, and
for quantised features their scales and zeros. ``place`` has each node's position when nodes are ordered by partition, so that P+1 bounds give a node's
owner. Node ids are those of the data set everywhere; samples therefore do not depend on the partitioning.

If the graph is partitioned too, ``graph`` has no edges: ``part-p`` has the edges into its nodes, and ``indptr`` the column offsets of the whole graph.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.columns import as_offsets, check_offsets
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.errors import InputError, check_choice
from hoptrain.engine.features.quantized import Rows, codes_of, files_of, rows_in
from hoptrain.engine.graph import Graph, PartialGraph
from hoptrain.engine.partition.columns import CoarseGraph, loads_of, pairs_between
from hoptrain.engine.partition.methods import assign, check_method, vertex_sizes
from hoptrain.engine.partition.topology.columns import OwnColumns, own_columns
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_folder, create_new_folder, kind_of, open_folder

KIND, PART_KIND, GRAPH = "partition", "part", "graph"
GRAPHS = ("replicated", "partitioned")
PIECE_BYTES = 64 << 20


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Partition:
    """A data set in P partitions, opened memory-mapped.

    Attributes:
        data: the data set without features.
        place: (V,) position of each node when nodes are ordered by partition.
        bounds: (P+1,) int64; partition p has the positions bounds[p] to bounds[p + 1] - 1.
        method: partitioning method.
        cut: fraction of the edges that connect nodes of different partitions.
        requests: (P,) expected fraction of all row requests that go to each partition.
        path: path of the folder.
        has_columns: whether the graph is partitioned too; then ``data.graph`` is a ``PartitionedGraph``.
    """

    data: Dataset
    place: Array
    bounds: Array
    method: str
    cut: float
    requests: Array
    path: Path
    has_columns: bool = False

    @property
    def num_parts(self) -> int:
        """Number of partitions, P."""
        return len(self.bounds) - 1

    def owner(self, nodes: Array) -> Array:
        """Return the partition of each node in ``nodes`` (N,), (N,) int64."""
        return np.searchsorted(self.bounds, self.place[nodes], side="right") - 1

    def rows(self, part: int, *, verify: bool | None = None) -> Rows:
        """Return the stored features (n, F) of a partition by ascending node id. ``verify`` compares checksums, by default up to 256 MiB.

        Raises:
            InputError: there is no such partition, its folder is missing or damaged, or it belongs to another partitioning.
        """
        arrays, folder = self._arrays(part, verify), part_folder(self.path, part)
        with complete_header(folder):
            found: Rows | None = rows_in(arrays, "x")
            rows = arrays["x"] if found is None else found
        number = int(self.bounds[part + 1] - self.bounds[part])
        if rows.ndim != 2 or len(rows) != number:
            raise InputError(
                f"{folder}: x has shape {tuple(rows.shape)}: the partition needs {number:,} rows, one per node; partition the data again"
            )
        return rows

    def columns(self, part: int) -> OwnColumns:
        """Return the columns of a partitioned graph that the machine of partition ``part`` stores.

        Raises:
            InputError: there is no such partition, its folder is missing or damaged, or it belongs to another partitioning.
        """
        arrays, folder = self._arrays(part), part_folder(self.path, part)
        with complete_header(folder), checking(folder) as is_new:
            own = PartialGraph.from_arrays(arrays, self.data.graph.is_sorted, is_new)
            if own.num_nodes != self.data.graph.num_nodes:
                raise InputError(
                    f"indptr has {own.num_nodes:,} nodes, but the graph has {self.data.graph.num_nodes:,}: partition the data again"
                )
        return OwnColumns(graph=own, whole=self.data.graph.indptr, place=self.place, bounds=self.bounds, part=part)

    def _arrays(self, part: int, verify: bool | None = None) -> dict[str, Array]:
        """Return the arrays of a partition."""
        if not 0 <= part < self.num_parts:
            raise InputError(f"part {part} of {self.path}: partitions are 0 to {self.num_parts - 1}; choose one")
        folder = part_folder(self.path, part)
        if not folder.is_dir():
            raise InputError(f"{folder} is not on this machine: copy it from where 'hoptrain data partition' wrote it")
        arrays, meta = open_folder(folder, PART_KIND, verify=verify)
        with complete_header(folder):
            found = meta["part"], meta["bounds"], meta["name"]
        if found != (part, self.bounds.tolist(), self.data.name):
            raise InputError(
                f"{folder} is part {meta['part']} of {len(meta['bounds']) - 1} of {meta['name']}, cut at other nodes: it must be made together "
                f"with {self.path}; copy that one"
            )
        return arrays


def part_folder(path: Path, part: int) -> Path:
    """Return the folder of a partition."""
    return path / f"part-{part}"


def write_partition(
    data: Dataset,
    path: str | Path,
    num_parts: int,
    method: str = "stream",
    tell: Callable[[str], None] = lambda line: None,
    graph: str = "replicated",
) -> None:
    """Write a partitioned data set into a new folder. ``path`` must not exist yet.

    Args:
        data: data set with features.
        path: the new folder.
        num_parts: number of partitions P.
        method: partitioning method, see ``methods.assign``.
        tell: function that is called with a line of text before each step.
        graph: "replicated" to give all machines the whole graph, or "partitioned" to give each machine the edges into its nodes.

    Raises:
        InputError: there are no features, the graph is to be partitioned and has edge features, the folder exists or cannot be written, or an argument is
            invalid.
    """
    path = Path(path)
    if data.x is None:
        raise InputError(f"{data.name} has no features: partitions hold feature rows; give a data set with features")
    check_choice("graph", graph, GRAPHS)
    is_partitioned = graph == "partitioned"
    if is_partitioned and data.edge_attr is not None:
        raise InputError(f"{data.name} has edge features, which need the whole graph: leave graph={graph!r} out")
    if is_partitioned and num_parts == 1:
        raise InputError("parts is 1 with graph='partitioned': a single machine has the whole graph; give more parts, or leave graph out")
    check_method(data.graph, num_parts, method)
    with create_new_folder(path, KIND) as writer:
        tell(f"partitioning {data.graph.num_nodes:,} nodes by {method}")
        parts = assign(data.graph, num_parts, method)
        order = np.argsort(parts, kind="stable")
        place = np.empty(len(order), np.uint32 if len(order) < 1 << 32 else np.int64)
        place[order] = np.arange(len(order), dtype=place.dtype)
        writer.add("place", place)
        bounds = np.searchsorted(parts[order], np.arange(num_parts + 1))
        writer.meta.update(name=data.name, method=method, bounds=bounds.tolist(), graph=graph, **_quality(data, parts, num_parts))
        tell("writing the graph" if not is_partitioned else "writing the data that all machines have")
        if is_partitioned:
            writer.add("indptr", data.graph.indptr)
            writer.meta["has_weight"] = data.graph.weights is None or bool(data.graph.weights.any())
        with create_folder(writer.folder / GRAPH, "dataset") as shared:
            replace(data, x=None, graph=_without_edges(data.graph) if is_partitioned else data.graph, validate=False).write_to(shared)
        for part in range(num_parts):
            tell(f"writing partition {part} of {num_parts}")
            with create_folder(part_folder(writer.folder, part), PART_KIND) as rows:
                nodes = order[bounds[part] : bounds[part + 1]]
                _write_rows(data.x, nodes, rows)
                if is_partitioned:
                    for name, array in own_columns(data.graph, place, bounds, part).graph.arrays().items():
                        rows.add(name, array)
                rows.meta.update(part=part, bounds=bounds.tolist(), name=data.name)


def _without_edges(graph: Graph) -> Graph:
    return Graph(np.zeros_like(graph.indptr), graph.indices[:0], is_sorted=graph.is_sorted, validate=False)


def _quality(data: Dataset, parts: Array, num_parts: int) -> dict[str, object]:
    """Return the edge cut and each partition's share of the expected requests, for the header."""
    sizes = vertex_sizes(data.graph)
    columns = CoarseGraph(data.graph.indptr, data.graph.indices, np.empty(0, np.int32), sizes)
    num_cut = sum(int(counts.sum()) for _, counts in pairs_between(columns, parts, num_parts))
    requests = loads_of(sizes, parts, num_parts)[:, 1]
    return {"cut": num_cut / max(1, data.graph.num_edges), "requests": (requests / max(1, requests.sum())).tolist()}


def _write_rows(x: Rows, nodes: Array, writer: FolderWriter) -> None:
    """Write the features of a partition's ``nodes``. For quantised features each partition also gets the scales and zeros."""
    codes = codes_of(x)
    for name, array in files_of("x", x).items():
        if array is codes:
            _copy_rows(codes, nodes, writer.create(name, codes.dtype, (len(nodes), codes.shape[1])))
        else:
            writer.add(name, array)


def _copy_rows(x: Array, nodes: Array, out: Array) -> None:
    """Copy rows in pieces, to use little memory."""
    step = max(1, PIECE_BYTES // max(1, x[:1].nbytes))
    for begin in range(0, len(nodes), step):
        out[begin : begin + step] = x[nodes[begin : begin + step]]


def open_partition(path: str | Path, *, verify: bool | None = None) -> Partition:
    """Open a folder of ``write_partition``. Folders of partitions that are not used may be missing.

    ``verify`` compares the checksums of the common data, by default for arrays up to 256 MiB.

    Raises:
        InputError: the folder was not written by ``write_partition``, or is truncated or altered.
    """
    path = Path(path)
    if kind_of(path) != KIND:
        raise InputError(f"{path} holds no partitioned data set: name a folder that 'hoptrain data partition' wrote")
    arrays, meta = open_folder(path, KIND, verify=verify)
    with complete_header(path):
        data, has_columns = Dataset.open(path / GRAPH, verify=verify), meta.get("graph") in ("partitioned", "parted")
        place, bounds = arrays["place"], _checked_bounds(path, meta["bounds"], data.graph.num_nodes)
        with checking(path, verify) as is_new:
            if is_new:
                _check_place(place, data.graph.num_nodes)
                if has_columns:
                    check_offsets(as_offsets(arrays["indptr"]), int(arrays["indptr"][-1]))
                    _check_size("indptr", arrays["indptr"], data.graph.num_nodes + 1)
        if has_columns:
            known = PartitionedGraph(arrays["indptr"], data.graph.is_sorted, str(path), meta.get("has_weight", True))
            data = replace(data, graph=known, validate=False)
        return Partition(
            data=data,
            place=place,
            bounds=bounds,
            method=meta["method"],
            cut=meta["cut"],
            requests=np.array(meta["requests"]),
            path=path,
            has_columns=has_columns,
        )


def _checked_bounds(path: Path, bounds: Any, num_nodes: int) -> Array:
    """Return the bounds (P+1,) int64 of a header.

    Raises:
        InputError: the bounds do not ascend from 0 to the number of nodes.
    """
    is_list = isinstance(bounds, list) and len(bounds) > 1 and all(type(bound) is int and 0 <= bound <= num_nodes for bound in bounds)
    if not is_list or bounds != sorted(bounds) or (bounds[0], bounds[-1]) != (0, num_nodes):
        raise InputError(
            f"{path}: bounds are {reprlib.repr(bounds)}: they must ascend from 0 to the number of nodes, {num_nodes:,}; partition the data again"
        )
    return np.array(bounds, np.int64)


def _check_place(place: Array, num_nodes: int) -> None:
    _check_size("place", place, num_nodes)
    if not is_integer(place.dtype):
        raise InputError(f"place is {place.dtype}: positions must be integers; partition the data again")
    is_within = not num_nodes or 0 <= place.min() <= place.max() < num_nodes
    if not is_within or (np.bincount(place, minlength=num_nodes) != 1).any():
        raise InputError(f"place must hold each of 0 to {num_nodes - 1} once: partition the data again")


def _check_size(name: str, array: Array, number: int) -> None:
    if array.shape != (number,):
        raise InputError(f"{name} has shape {array.shape}: it must be ({number},); partition the data again")
