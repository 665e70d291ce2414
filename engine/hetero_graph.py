"""A graph with several node types and edge types."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_weights
from hoptrain.engine.columns import ARRAYS, RelationColumns, wide_ids
from hoptrain.engine.errors import InputError, error_context
from hoptrain.engine.graph import ends_of, times_of_sources
from hoptrain.engine.store import checking, complete_header, create_new_folder, open_folder
from hoptrain.kernels.cpu.csc import first_out_of_range

KIND = "hetero-graph"

Relation: TypeAlias = tuple[str, str, str]
"""Edge type as a triple (source node type, name, destination node type)."""


class HeteroGraph:
    """A directed graph with typed nodes and edges. Nodes are numbered from 0 within each type, edges within each relation.

    A relation is a triple (source type, name, destination type). Its edges are stored by destination, as in ``Graph``. Several
    relations with different names may connect the same types.

    Attributes:
        num_nodes: number of nodes of each type.
        relations: the edges of each relation, in the given order. The order matters: a relation's index addresses a sampler's random numbers.

    Examples:
        >>> from hoptrain import HeteroGraph
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])})
        >>> graph.relations["user", "buys", "item"].indices  # the buyers of item 0, of item 1 (none) and of item 2
        array([0, 0, 1], dtype=int32)
        >>> list(graph.with_reverse().relations)
        [('user', 'buys', 'item'), ('item', 'rev_buys', 'user')]
    """

    __slots__ = ("num_nodes", "relations")

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        relations: Mapping[Relation, tuple[Array, Array]],
        *,
        weights: Mapping[Relation, Array] | None = None,
        times: Mapping[Relation, Array] | None = None,
        edge_ids: Mapping[Relation, Array] | None = None,
    ) -> None:
        """Store CSC arrays (indptr, indices) for each relation: (N+1,) column offsets of its N destinations and (E,) sources.

        Args:
            num_nodes: number of nodes of each type.
            relations: indptr and indices of each relation.
            weights: float32 or float64 weights (E,) for the relations whose edges have weights.
            times: integer times (E,) for the relations whose edges have times.
            edge_ids: distinct non-negative integers (E,) for each relation; by default an edge's id is its position.

        Raises:
            InputError: a name is empty or has a ":", a type is missing in ``num_nodes``, CSC arrays are invalid, or values are given for an unknown relation.
        """
        self.num_nodes: dict[str, int] = {name: _checked_number(name, number) for name, number in num_nodes.items()}
        self.relations: dict[Relation, RelationColumns] = {}
        given = {"weights": weights or {}, "times": times or {}, "edge_ids": edge_ids or {}}
        _check_named(relations, **given)
        for relation, (indptr, indices) in relations.items():
            options: Any = {name: values.get(relation) for name, values in given.items()}
            with error_context(self._name_of(relation)):
                self._add(relation, RelationColumns(indptr, indices, self.num_nodes[relation[0]], **options))

    @classmethod
    def from_edges(
        cls,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Array, Array]],
        *,
        weights: Mapping[Relation, Array] | None = None,
        times: Mapping[Relation, Array] | None = None,
    ) -> HeteroGraph:
        """Build a graph from (src, dst) for each relation: (E,) integers, edges src[i] -> dst[i] with ids i. Columns are sorted.

        ``weights`` (E,) and ``times`` (E,) are for the relations that have them, one for each edge. Parallel edges are kept in input order.

        Raises:
            InputError: the constructor rejects an argument, lengths differ, or an edge has a node that does not exist.
        """
        graph = cls(num_nodes, {})
        given = {"weights": weights or {}, "times": times or {}}
        _check_named(edges, **given)
        for relation, ends in edges.items():
            options: Any = {name: values.get(relation) for name, values in given.items()}
            with error_context(graph._name_of(relation)):
                if len(ends) != 2:
                    raise InputError(f"its edges are {len(ends)} arrays: a relation needs two; give sources and destinations")
                num_src, num_dst = graph.num_nodes[relation[0]], graph.num_nodes[relation[2]]
                graph.relations[relation] = RelationColumns.from_ends(*ends, num_src, num_dst, **options)
        return graph

    @classmethod
    def from_pyg(cls, data: Any, *, weight_attr: str | None = None, time_attr: str | None = None) -> HeteroGraph:
        """Read a ``torch_geometric.data.HeteroData``. An edge's id is its column in the ``edge_index`` (2, E) of its type.

        Args:
            data: the ``HeteroData`` object.
            weight_attr: name of the edge attribute with weights; at least one edge type must have it.
            time_attr: name of an edge or node attribute with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: no type has a named attribute, both edge and node types have ``time_attr``, or the edges are invalid.
        """
        if not hasattr(data, "edge_types"):
            raise InputError(f"the graph is a {type(data).__name__}: a HeteroData of PyG is needed; read a Data with Graph.from_pyg")
        edges = {tuple(relation): _ends(data, relation) for relation in data.edge_types}
        weights = {key: as_weights(values) for key, values in _stored(data, data.edge_types, weight_attr).items()}
        times = {key: as_array(values) for key, values in _stored(data, data.edge_types, time_attr).items()}
        of_nodes = _stored(data, data.node_types, time_attr)
        for attr, found in ((weight_attr, (weights,)), (time_attr, (times, of_nodes))):
            if attr is not None and sum(map(bool, found)) != 1:
                raise InputError(
                    f"{attr!r} is an attribute of {_where(*found)}: it must belong to only one of edge types and node types; name another attribute"
                )
        if of_nodes:
            times = {key: times_of_sources(of_nodes[key[0]], src) for key, (src, _) in edges.items() if key[0] in of_nodes}
        return cls.from_edges({name: _number(data, name) for name in data.node_types}, edges, weights=weights, times=times)

    @classmethod
    def from_dgl(cls, graph: Any) -> HeteroGraph:
        """Read a heterogeneous ``dgl.DGLGraph``; edge ids are DGL's. For weights and times, which DGL gives no fixed names, use ``from_edges``."""
        ends = {tuple(relation): graph.edges(etype=relation) for relation in graph.canonical_etypes}
        edges = {relation: (as_array(src), as_array(dst)) for relation, (src, dst) in ends.items()}
        return cls.from_edges({name: int(graph.num_nodes(name)) for name in graph.ntypes}, edges)

    def with_reverse(self) -> HeteroGraph:
        """Return a copy with a reverse relation (B, "rev_name", A) appended for each relation (A, name, B). Reversed edges keep their ids.

        PyG's ``ToUndirected(merge=False)`` does the same: a relation within one type gets a reverse relation, too.

        Raises:
            InputError: a relation with the name of a reverse relation exists.
        """
        graph = HeteroGraph(self.num_nodes, {})
        graph.relations = dict(self.relations)
        for relation, columns in self.relations.items():
            source, name, destination = relation
            reverse = destination, f"rev_{name}", source
            if reverse in self.relations:
                raise InputError(
                    f"{relation_name(reverse)} exists: with_reverse needs this name for the reverse of {relation_name(relation)}; rename it, or add no reverses"
                )
            graph.relations[reverse] = columns.reversed()
        return graph

    def with_edges(self, is_kept: Mapping[Relation, Array]) -> HeteroGraph:
        """Return a copy with the edges that the masks (E,) select in each relation. Edges keep their ids, weights and times."""
        graph = HeteroGraph(self.num_nodes, {})
        graph.relations = {key: own if is_kept[key].all() else own.with_edges(is_kept[key]) for key, own in self.relations.items()}
        return graph

    def save(self, path: str | Path) -> None:
        """Write the graph into a new folder. ``path`` must not exist yet; ``HeteroGraph.open`` reads it."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(self.header())

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of all relations by their file names, such as ``indptr_0`` for the first relation."""
        return {f"{name}_{i}": array for i, own in enumerate(self.relations.values()) for name, array in own.arrays().items()}

    def header(self) -> dict[str, Any]:
        """Return the entries of the folder's header that describe the graph."""
        return {"num_nodes": self.num_nodes, "relations": [list(relation) for relation in self.relations]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], header: Mapping[str, Any], validate: bool = False) -> HeteroGraph:
        """Build a graph from ``arrays()`` and ``header()``; other entries are ignored.

        Raises:
            InputError: with ``validate``: the arrays are invalid.
        """
        graph = cls(header["num_nodes"], {})
        for i, relation in enumerate(map(tuple, header["relations"])):
            own = {name: arrays[f"{name}_{i}"] for name in ARRAYS if f"{name}_{i}" in arrays}
            with error_context(graph._name_of(relation)):
                graph._add(relation, RelationColumns.from_arrays(own, None, validate, graph.num_nodes[relation[0]]))
        return graph

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> HeteroGraph:
        """Open a folder written by ``save`` as memory-mapped arrays. ``verify`` compares checksums, by default for folders up to 256 MiB.

        Raises:
            InputError: the folder was not written by ``save``, or is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, KIND, verify=verify)
        with complete_header(path), checking(path, verify) as is_new:
            return cls.from_arrays(arrays, meta, is_new)

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return sum(columns.num_edges for columns in self.relations.values())

    def numbered(self, vertices: Mapping[str, Array]) -> Array:
        """Convert node ids (B_t,), given by node type t, to numbers (B,) int64 that are unique in the whole graph, one type after another.

        A type's numbers follow those of all types before it in ``num_nodes``.

        Raises:
            InputError: a node type or a node does not exist.
        """
        begins = self._begins()
        numbers = [np.zeros(0, np.int64)]
        for name, ids in vertices.items():
            if name not in begins:
                raise InputError(f"{name!r} is not a node type of the graph: it must be one of {', '.join(begins)}; choose one of them")
            own = wide_ids(ids, f"nodes of {name!r}")
            bad = first_out_of_range(own, self.num_nodes[name])
            if bad >= 0:
                raise InputError(
                    f"node {own[bad]} of type {name!r} does not exist: ids must be in 0 to {self.num_nodes[name] - 1}; drop it"
                )
            numbers.append(own + begins[name])
        return np.concatenate(numbers)

    def by_type(self, numbers: Array) -> dict[str, tuple[Array, Array]]:
        """Invert ``numbered``: return, for each type that occurs, its node ids (B_t,) and their positions (B_t,) in ``numbers``."""
        begins = self._begins()
        kinds = (
            np.searchsorted(list(begins.values()), numbers, side="right") - 1
        )  # of types with equal first numbers only the last has nodes
        places = {name: np.flatnonzero(kinds == kind) for kind, name in enumerate(begins)}
        return {name: (numbers[own] - begins[name], own) for name, own in places.items() if len(own)}

    def _begins(self) -> dict[str, int]:
        """Return the global number of each type's first node."""
        ends = np.cumsum([0, *self.num_nodes.values()]).tolist()
        return dict(zip(self.num_nodes, ends, strict=False))

    def __repr__(self) -> str:
        relations = ", ".join(f"{relation_name(relation)} ({columns.num_edges:,})" for relation, columns in self.relations.items())
        return f"HeteroGraph(num_nodes={self.num_nodes}, relations: {relations})"

    def _add(self, relation: Relation, columns: RelationColumns) -> None:
        if columns.num_nodes != self.num_nodes[relation[2]]:
            raise InputError(
                f"indptr has {len(columns.indptr):,} entries: it must have one more than the {self.num_nodes[relation[2]]:,} nodes of type "
                f"{relation[2]!r}; rebuild it with HeteroGraph.from_edges"
            )
        self.relations[relation] = columns

    def _name_of(self, relation: Relation) -> str:
        """Return the name of a relation. Raise InputError if it is not a valid triple or connects unknown node types."""
        if len(relation) != 3 or any(not isinstance(part, str) or not part or ":" in part for part in relation):
            raise InputError(
                f"relation {relation}: it must be (source type, name, destination type), non-empty strings without ':'; rename it"
            )
        for name in (relation[0], relation[2]):
            if name not in self.num_nodes:
                raise InputError(
                    f"{relation_name(relation)} has the type {name!r}: it must be in num_nodes, which has {', '.join(self.num_nodes)}; add it there"
                )
        return relation_name(relation)


def relation_name(relation: Relation) -> str:
    """Return ``source:name:destination``, the form of a relation in configuration files."""
    return ":".join(relation)


def _checked_number(name: str, number: int) -> int:
    if not name:
        raise InputError("a node type is named '': node types must have a non-empty name; rename it")
    if not hasattr(number, "__index__") or number < 0:
        raise InputError(f"num_nodes of {name!r} is {number}: it must be an integer of 0 or more; give the number of nodes")
    return index(number)


def _check_named(relations: Mapping[Relation, Any], **given: Mapping[Relation, Any]) -> None:
    """Raise InputError if values are given for a relation that does not exist."""
    for name, values in given.items():
        for relation in values:
            if relation not in relations:
                raise InputError(
                    f"{name} of {relation}: the graph has no such relation; name one of {', '.join(map(relation_name, relations))}"
                )


def _stored(data: Any, types: Sequence[Any], attr: str | None) -> dict[Any, Any]:
    """Return the values of a PyG object's attribute by type."""
    return {} if attr is None else {kind: data[kind][attr] for kind in types if attr in data[kind]}


def _ends(data: Any, relation: Relation) -> tuple[Array, Array]:
    """Return sources and destinations of a PyG edge type."""
    edge_index = getattr(data[relation], "edge_index", None)
    if edge_index is None:
        raise InputError(
            f"{relation_name(relation)} has no edge_index but {', '.join(data[relation].keys()) or 'nothing'}: an edge type needs "
            "edge_index (2, E); set it, for example from coo() of adj_t"
        )
    with error_context(relation_name(relation)):
        return ends_of(edge_index)


def _number(data: Any, name: str) -> int:
    """Return the number of nodes of a PyG node type, from ``num_nodes`` or its features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns when it infers the number from edges
        number = data[name].num_nodes
    if number is None:
        raise InputError(
            f"type {name!r} has neither num_nodes nor x: its number of nodes cannot be inferred from edges; set data[{name!r}].num_nodes"
        )
    return int(number)


def _where(*found: Mapping[Any, Any]) -> str:
    """Return "edge types", "node types", both, or "no ..." for the kinds of types that have an attribute."""
    kinds = ("edge types", "node types")[: len(found)]
    return " and ".join(kind for kind, own in zip(kinds, found, strict=True) if own) or f"no {' nor '.join(kinds)}"
