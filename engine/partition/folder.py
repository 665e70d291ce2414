"""The folder of a data set in parts: what every machine has, and the features of each part.

``graph`` is a data set without features: the topology, labels and splits. ``part-0`` to ``part-(P-1)`` have the feature rows of their nodes, one
behind another by ascending id, and of features in codes what these stand for. ``place`` says where a node is: nodes are counted through all parts,
part after part, so that its owner is found among P+1 bounds. Ids stay those of the data set everywhere, which is why a sample does not depend on the parts.

Where the graph is parted too, ``graph`` has no edges: ``part-p`` has those into its nodes, and ``indptr`` says where columns begin in the whole graph.
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
from hoptrain.engine.partition.columns import Columns, loads_of, pairs_between
from hoptrain.engine.partition.methods import assign, check_method, vertex_sizes
from hoptrain.engine.partition.topology.columns import OwnColumns, own_columns
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_folder, create_new_folder, kind_of, open_folder

KIND, PART_KIND, GRAPH = "partition", "part", "graph"
GRAPHS = ("replicated", "partitioned")
PIECE_BYTES = 64 << 20


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Partition:
    """A data set in P parts, opened memory-mapped.

    Attributes:
        data: the data set without features.
        place: (V,) where each node is, counted through the parts.
        bounds: (P+1,) int64; part p has the places from bounds[p] to bounds[p + 1].
        method: how it was parted.
        cut: share of the edges that join two parts.
        requests: (P,) share of the requests that each part is expected to answer.
        path: the folder.
        has_columns: whether the graph is parted too; that of ``data`` is then a ``PartitionedGraph``.
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
        """P."""
        return len(self.bounds) - 1

    def owner(self, nodes: Array) -> Array:
        """The part of each node of ``nodes`` (N,), (N,) int64."""
        return np.searchsorted(self.bounds, self.place[nodes], side="right") - 1

    def rows(self, part: int, *, verify: bool | None = None) -> Rows:
        """The features of a part, (n, F), by ascending node id, as stored; ``verify`` compares its checksums, by default for up to 256 MiB.

        Raises:
            InputError: there is no such part, its folder is missing or damaged, or it is of another partition.
        """
        arrays, folder = self._arrays(part, verify), part_folder(self.path, part)
        with complete_header(folder):
            found: Rows | None = rows_in(arrays, "x")
            rows = arrays["x"] if found is None else found
        number = int(self.bounds[part + 1] - self.bounds[part])
        if rows.ndim != 2 or len(rows) != number:
            raise InputError(
                f"{folder}: x has shape {tuple(rows.shape)}: the part has {number:,} nodes, a row each; partition the data again"
            )
        return rows

    def columns(self, part: int) -> OwnColumns:
        """What the machine with a part has of a graph that is parted too.

        Raises:
            InputError: as ``rows``.
        """
        arrays, folder = self._arrays(part), part_folder(self.path, part)
        with complete_header(folder), checking(folder) as is_new:
            own = PartialGraph.from_arrays(arrays, self.data.graph.is_sorted, is_new)
            if own.num_nodes != self.data.graph.num_nodes:
                raise InputError(
                    f"indptr is of {own.num_nodes:,} nodes, and the graph has {self.data.graph.num_nodes:,}: partition the data again"
                )
        return OwnColumns(graph=own, whole=self.data.graph.indptr, place=self.place, bounds=self.bounds, part=part)

    def _arrays(self, part: int, verify: bool | None = None) -> dict[str, Array]:
        """The arrays of a part."""
        if not 0 <= part < self.num_parts:
            raise InputError(f"part {part} of {self.path}: its parts are 0 to {self.num_parts - 1}; choose one")
        folder = part_folder(self.path, part)
        if not folder.is_dir():
            raise InputError(f"{folder} is not on this machine: bring it from where 'hoptrain data partition' wrote it")
        arrays, meta = open_folder(folder, PART_KIND, verify=verify)
        with complete_header(folder):
            found = meta["part"], meta["bounds"], meta["name"]
        if found != (part, self.bounds.tolist(), self.data.name):
            raise InputError(
                f"{folder} is part {meta['part']} of {len(meta['bounds']) - 1} of {meta['name']}, cut at other nodes: "
                f"bring the one that was made with {self.path}"
            )
        return arrays


def part_folder(path: Path, part: int) -> Path:
    """Where the features of a part lie."""
    return path / f"part-{part}"


def write_partition(
    data: Dataset,
    path: str | Path,
    num_parts: int,
    method: str = "stream",
    tell: Callable[[str], None] = lambda line: None,
    graph: str = "replicated",
) -> None:
    """Write a data set in parts as a folder; ``path`` must not exist yet.

    Args:
        data: a data set with features.
        path: the new folder.
        num_parts: P.
        method: see ``methods.assign``.
        tell: called with a line before each step.
        graph: of ``GRAPHS``: "whole" for all machines, or "parted", each machine with the edges into its nodes.

    Raises:
        InputError: no features, features of edges with a parted graph, a folder that exists or cannot be written, and what ``assign`` refuses.
    """
    path = Path(path)
    if data.x is None:
        raise InputError(f"{data.name} has no features: its parts would be empty; give one with features")
    check_choice("graph", graph, GRAPHS)
    is_partitioned = graph == "partitioned"
    if is_partitioned and data.edge_attr is not None:
        raise InputError(f"{data.name} has features of edges, which stay with a whole graph: leave graph={graph!r} out")
    if is_partitioned and num_parts == 1:
        raise InputError("parts is 1 with graph='partitioned': a machine alone has the graph whole; take more parts, or leave it out")
    check_method(data.graph, num_parts, method)
    with create_new_folder(path, KIND) as writer:
        tell(f"parting {data.graph.num_nodes:,} nodes by {method}")
        parts = assign(data.graph, num_parts, method)
        order = np.argsort(parts, kind="stable")
        place = np.empty(len(order), np.uint32 if len(order) < 1 << 32 else np.int64)
        place[order] = np.arange(len(order), dtype=place.dtype)
        writer.add("place", place)
        bounds = np.searchsorted(parts[order], np.arange(num_parts + 1))
        writer.meta.update(name=data.name, method=method, bounds=bounds.tolist(), graph=graph, **_quality(data, parts, num_parts))
        tell("writing the graph" if not is_partitioned else "writing what all machines have")
        if is_partitioned:
            writer.add("indptr", data.graph.indptr)
            writer.meta["has_weight"] = data.graph.weights is None or bool(data.graph.weights.any())
        with create_folder(writer.folder / GRAPH, "dataset") as shared:
            replace(data, x=None, graph=_without_edges(data.graph) if is_partitioned else data.graph, validate=False).write_to(shared)
        for part in range(num_parts):
            tell(f"writing part {part} of {num_parts}")
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
    """The cut, and each part's share of the expected requests, as the header states them."""
    sizes = vertex_sizes(data.graph)
    columns = Columns(data.graph.indptr, data.graph.indices, np.empty(0, np.int32), sizes)
    num_cut = sum(int(counts.sum()) for _, counts in pairs_between(columns, parts, num_parts))
    requests = loads_of(sizes, parts, num_parts)[:, 1]
    return {"cut": num_cut / max(1, data.graph.num_edges), "requests": (requests / max(1, requests.sum())).tolist()}


def _write_rows(x: Rows, nodes: Array, writer: FolderWriter) -> None:
    """Write the features of a part's ``nodes``; of codes also what they stand for, which is the same for all parts."""
    codes = codes_of(x)
    for name, array in files_of("x", x).items():
        if array is codes:
            _copy_rows(codes, nodes, writer.create(name, codes.dtype, (len(nodes), codes.shape[1])))
        else:
            writer.add(name, array)


def _copy_rows(x: Array, nodes: Array, out: Array) -> None:
    """Copy rows in pieces, so that memory stays small."""
    step = max(1, PIECE_BYTES // max(1, x[:1].nbytes))
    for begin in range(0, len(nodes), step):
        out[begin : begin + step] = x[nodes[begin : begin + step]]


def open_partition(path: str | Path, *, verify: bool | None = None) -> Partition:
    """Open a folder that ``write_partition`` made. Parts may be missing but for those that are used.

    ``verify`` compares checksums, but those of parts; by default for arrays up to 256 MiB.

    Raises:
        InputError: not such a folder, or one that is truncated or altered.
    """
    path = Path(path)
    if kind_of(path) != KIND:
        raise InputError(f"{path} holds no parts of a data set: name a folder that 'hoptrain data partition' wrote")
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
        InputError: they do not ascend from 0 to the number of nodes.
    """
    is_list = isinstance(bounds, list) and len(bounds) > 1 and all(type(bound) is int and 0 <= bound <= num_nodes for bound in bounds)
    if not is_list or bounds != sorted(bounds) or (bounds[0], bounds[-1]) != (0, num_nodes):
        raise InputError(
            f"{path}: bounds are {reprlib.repr(bounds)}: they ascend from 0 to the number of nodes, {num_nodes:,}; partition the data again"
        )
    return np.array(bounds, np.int64)


def _check_place(place: Array, num_nodes: int) -> None:
    _check_size("place", place, num_nodes)
    if not is_integer(place.dtype):
        raise InputError(f"place is {place.dtype}: places are integers; partition the data again")
    is_within = not num_nodes or 0 <= place.min() <= place.max() < num_nodes
    if not is_within or (np.bincount(place, minlength=num_nodes) != 1).any():
        raise InputError(f"place does not hold each of 0 to {num_nodes - 1} once: partition the data again")


def _check_size(name: str, array: Array, number: int) -> None:
    if array.shape != (number,):
        raise InputError(f"{name} has shape {array.shape}: it is ({number},); partition the data again")
