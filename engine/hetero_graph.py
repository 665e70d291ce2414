"""A graph with several types of vertices and of edges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import as_ids, as_offsets, check_ids, check_offsets, narrow_ids, read_only
from hoptrain.engine.store import complete_header, create_new_folder, open_folder
from hoptrain.kernels.cpu.csc import coo_to_csc

KIND = "hetero-graph"

Relation: TypeAlias = tuple[str, str, str]
"""(type of the sources, name, type of the destinations)."""


class RelationColumns:
    """The edges of one relation as compressed columns, read-only; N destinations, E edges.

    Attributes:
        indptr: (N+1,) where each destination's column begins; int32 if E < 2**31 else int64.
        indices: (E,) sources, ids within their type; int32 where they fit, else int64. The place of an edge here is its edge id.
    """

    __slots__ = ("indices", "indptr")

    def __init__(self, indptr: Array, indices: Array, num_src: int) -> None:
        """Take CSC arrays (without a copy where dtypes allow) with sources in [0, num_src).

        Raises:
            InputError: arrays of a wrong kind or length, offsets that descend, a vertex that does not exist.
        """
        indptr, indices = as_offsets(indptr), as_ids(indices, "indices")
        check_offsets(indptr, len(indices))
        self.indptr: Array = read_only(indptr.astype(offset_dtype(len(indices)), copy=False))
        self.indices: Array = read_only(narrow_ids(indices, num_src))

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.indices)


class HeteroGraph:
    """A directed graph whose vertices and edges have types; vertices are numbered from 0 within each type.

    A relation is a triple (source type, name, destination type); its edges are stored by destination, as those of ``Graph``. Two
    relations may join the same types under different names.

    Attributes:
        num_nodes: number of vertices of each type.
        relations: the columns of each relation, in the order given: it addresses a sampler's random numbers.
    """

    __slots__ = ("num_nodes", "relations")

    def __init__(self, num_nodes: Mapping[str, int], relations: Mapping[Relation, tuple[Array, Array]]) -> None:
        """Take for each relation (indptr, indices): (N+1,) offsets of its N destinations' columns, (E,) sources.

        Raises:
            InputError: a name with a ":", a type without a number of vertices, columns that do not fit.
        """
        self.num_nodes = {name: _checked_number(name, number) for name, number in num_nodes.items()}
        self.relations: dict[Relation, RelationColumns] = {}
        for relation, (indptr, indices) in relations.items():
            num_src, num_dst = self._sizes(relation)
            if len(indptr) != num_dst + 1:
                raise InputError(
                    f"indptr of {relation_name(relation)} has {len(indptr):,} entries: it holds one more than the {num_dst:,} vertices of type "
                    f"{relation[2]!r}; rebuild it by HeteroGraph.from_edges"
                )
            self.relations[relation] = RelationColumns(indptr, indices, num_src)

    @classmethod
    def from_edges(cls, num_nodes: Mapping[str, int], edges: Mapping[Relation, tuple[Array, Array]]) -> HeteroGraph:
        """Take for each relation (src, dst): (E,) integers, edges src[i] -> dst[i]; columns come out sorted.

        Raises:
            InputError: as the constructor; lengths that differ, an edge that names a vertex that does not exist.
        """
        graph = cls(num_nodes, {})
        columns = {}
        for relation, (src, dst) in edges.items():
            num_src, num_dst = graph._sizes(relation)
            src, dst = as_ids(src, "src").astype(np.int64, copy=False), as_ids(dst, "dst").astype(np.int64, copy=False)
            if len(src) != len(dst):
                raise InputError(f"{relation_name(relation)} has {len(src):,} sources and {len(dst):,} destinations: give as many of each")
            check_ids(src, num_src, f"{relation_name(relation)}: the source of edge")
            check_ids(dst, num_dst, f"{relation_name(relation)}: the destination of edge")
            indptr, indices, _ = coo_to_csc(src, dst, max(num_src, num_dst), id_dtype(num_src))
            columns[relation] = (indptr[: num_dst + 1], indices)
        return cls(num_nodes, columns)

    @classmethod
    def from_pyg(cls, data: Any) -> HeteroGraph:
        """A ``torch_geometric.data.HeteroData`` whose edge types have ``edge_index`` (2, E)."""
        edges = {tuple(relation): tuple(np.asarray(data[relation].edge_index)) for relation in data.edge_types}
        return cls.from_edges({name: int(data[name].num_nodes) for name in data.node_types}, edges)

    def save(self, path: str | Path) -> None:
        """Write the graph as a folder; ``path`` must not exist yet. Opened again with ``HeteroGraph.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            for i, columns in enumerate(self.relations.values()):
                writer.add(f"indptr_{i}", columns.indptr)
                writer.add(f"indices_{i}", columns.indices)
            writer.meta.update(num_nodes=self.num_nodes, relations=[list(relation) for relation in self.relations])

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> HeteroGraph:
        """Open a folder memory-mapped; ``verify`` compares checksums, by default for folders up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, KIND, verify=verify)
        with complete_header(path):
            columns = {tuple(relation): (arrays[f"indptr_{i}"], arrays[f"indices_{i}"]) for i, relation in enumerate(meta["relations"])}
            return cls(meta["num_nodes"], columns)

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return sum(columns.num_edges for columns in self.relations.values())

    def __repr__(self) -> str:
        relations = ", ".join(f"{relation_name(relation)} ({columns.num_edges:,})" for relation, columns in self.relations.items())
        return f"HeteroGraph(num_nodes={self.num_nodes}, relations: {relations})"

    def _sizes(self, relation: Relation) -> tuple[int, int]:
        """Numbers of vertices of a relation's source and destination types."""
        if len(relation) != 3 or any(":" in part for part in relation):
            raise InputError(f"{relation} is no relation: it is (source type, name, destination type), without a ':' in them; rename it")
        source, _, destination = relation
        for name in (source, destination):
            if name not in self.num_nodes:
                raise InputError(f"{relation_name(relation)} joins type {name!r}: num_nodes has {', '.join(self.num_nodes)}; add it there")
        return self.num_nodes[source], self.num_nodes[destination]


def relation_name(relation: Relation) -> str:
    """``source:name:destination``, as a relation is written in a configuration file."""
    return ":".join(relation)


def _checked_number(name: str, number: int) -> int:
    if number < 0:
        raise InputError(f"num_nodes of {name!r} is {number}: a type has 0 vertices or more; correct it")
    return int(number)
