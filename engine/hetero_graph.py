"""A graph with several types of nodes and of edges."""

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
"""(type of the sources, name, type of the destinations)."""


class HeteroGraph:
    """A directed graph whose nodes and edges have types; nodes are numbered from 0 within each type, edges within each relation.

    A relation is a triple (source type, name, destination type); its edges are stored by destination, as those of ``Graph``. Two
    relations may join the same types under different names.

    Attributes:
        num_nodes: number of nodes of each type.
        relations: the columns of each relation, in the order given: it addresses a sampler's random numbers.

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
        """Take for each relation (indptr, indices): (N+1,) offsets of its N destinations' columns, (E,) sources.

        Args:
            num_nodes: number of nodes of each type.
            relations: the columns.
            weights: (E,) float32 or float64 for the relations whose edges have weights.
            times: (E,) integers for the relations whose edges have times.
            edge_ids: (E,) distinct integers, not negative; by default an entry's place is its edge's id.

        Raises:
            InputError: a name with a ":", a type without a number of nodes, columns that do not fit, values of an unknown relation.
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
        """Take for each relation (src, dst): (E,) integers, edges src[i] -> dst[i], whose ids are i; columns come out sorted.

        ``weights`` (E,) and ``times`` (E,) are for the relations that have some, one for each edge. Parallel edges stay, in the order of the input.

        Raises:
            InputError: as the constructor; lengths that differ, an edge that names a node that does not exist.
        """
        graph = cls(num_nodes, {})
        given = {"weights": weights or {}, "times": times or {}}
        _check_named(edges, **given)
        for relation, ends in edges.items():
            options: Any = {name: values.get(relation) for name, values in given.items()}
            with error_context(graph._name_of(relation)):
                if len(ends) != 2:
                    raise InputError(f"its edges are {len(ends)} arrays: give two, sources and destinations")
                num_src, num_dst = graph.num_nodes[relation[0]], graph.num_nodes[relation[2]]
                graph.relations[relation] = RelationColumns.from_ends(*ends, num_src, num_dst, **options)
        return graph

    @classmethod
    def from_pyg(cls, data: Any, *, weight_attr: str | None = None, time_attr: str | None = None) -> HeteroGraph:
        """A ``torch_geometric.data.HeteroData`` whose edge types have ``edge_index`` (2, E), whose columns the ids count.

        Args:
            data: the graph.
            weight_attr: what weights are called at the edge types that have some; at least one has.
            time_attr: what times are called, at edge types or at node types that have some: an edge then has its source's time.

        Raises:
            InputError: a name that no type has, or times of both kinds; as ``from_edges``.
        """
        if not hasattr(data, "edge_types"):
            raise InputError(f"the graph is a {type(data).__name__}: one with types is a HeteroData of PyG's; Graph.from_pyg takes a Data")
        edges = {tuple(relation): _ends(data, relation) for relation in data.edge_types}
        weights = {key: as_weights(values) for key, values in _stored(data, data.edge_types, weight_attr).items()}
        times = {key: as_array(values) for key, values in _stored(data, data.edge_types, time_attr).items()}
        of_nodes = _stored(data, data.node_types, time_attr)
        for attr, found in ((weight_attr, (weights,)), (time_attr, (times, of_nodes))):
            if attr is not None and sum(map(bool, found)) != 1:
                raise InputError(
                    f"{attr!r} is an attribute of {_where(*found)}: its values are those of one kind of types; correct the name"
                )
        if of_nodes:
            times = {key: times_of_sources(of_nodes[key[0]], src) for key, (src, _) in edges.items() if key[0] in of_nodes}
        return cls.from_edges({name: _number(data, name) for name in data.node_types}, edges, weights=weights, times=times)

    @classmethod
    def from_dgl(cls, graph: Any) -> HeteroGraph:
        """A ``dgl.DGLGraph`` with its types; ids are DGL's. Weights and times have no names of their own there: give them to ``from_edges``."""
        ends = {tuple(relation): graph.edges(etype=relation) for relation in graph.canonical_etypes}
        edges = {relation: (as_array(src), as_array(dst)) for relation, (src, dst) in ends.items()}
        return cls.from_edges({name: int(graph.num_nodes(name)) for name in graph.ntypes}, edges)

    def with_reverse(self) -> HeteroGraph:
        """With each relation (A, name, B) also turned round, as (B, "rev_name", A), behind all that there are; its edges have the ids of their originals.

        So PyG's ``ToUndirected(merge=False)`` does it: a relation within a type gets a reverse of its own, too.

        Raises:
            InputError: there is a relation of such a name.
        """
        graph = HeteroGraph(self.num_nodes, {})
        graph.relations = dict(self.relations)
        for relation, columns in self.relations.items():
            source, name, destination = relation
            reverse = destination, f"rev_{name}", source
            if reverse in self.relations:
                raise InputError(
                    f"{relation_name(reverse)} is there: {relation_name(relation)} turned round is to have this name; rename it"
                )
            graph.relations[reverse] = columns.reversed()
        return graph

    def with_edges(self, is_kept: Mapping[Relation, Array]) -> HeteroGraph:
        """Return the graph with some of each relation's edges, (E,) bool: each keeps the id that it had. See ``Graph.with_edges``."""
        graph = HeteroGraph(self.num_nodes, {})
        graph.relations = {key: own if is_kept[key].all() else own.with_edges(is_kept[key]) for key, own in self.relations.items()}
        return graph

    def save(self, path: str | Path) -> None:
        """Write the graph as a folder; ``path`` must not exist yet. Opened again with ``HeteroGraph.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            for name, array in self.arrays().items():
                writer.add(name, array)
            writer.meta.update(self.header())

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of each relation by the name of their files, which end with its number."""
        return {f"{name}_{i}": array for i, own in enumerate(self.relations.values()) for name, array in own.arrays().items()}

    def header(self) -> dict[str, Any]:
        """Return what the header of a folder states in addition to the arrays."""
        return {"num_nodes": self.num_nodes, "relations": [list(relation) for relation in self.relations]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], header: Mapping[str, Any], validate: bool = False) -> HeteroGraph:
        """Make a graph of ``arrays()``, which may hold others too, and ``header()``.

        Raises:
            InputError: with ``validate``, as the constructor.
        """
        graph = cls(header["num_nodes"], {})
        for i, relation in enumerate(map(tuple, header["relations"])):
            own = {name: arrays[f"{name}_{i}"] for name in ARRAYS if f"{name}_{i}" in arrays}
            with error_context(graph._name_of(relation)):
                graph._add(relation, RelationColumns.from_arrays(own, None, validate, graph.num_nodes[relation[0]]))
        return graph

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> HeteroGraph:
        """Open a folder memory-mapped; ``verify`` compares checksums, by default for folders up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, KIND, verify=verify)
        with complete_header(path), checking(path, verify) as is_new:
            return cls.from_arrays(arrays, meta, is_new)

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return sum(columns.num_edges for columns in self.relations.values())

    def numbered(self, vertices: Mapping[str, Array]) -> Array:
        """Nodes (B_t,) of some types t as single numbers (B,) int64, type after type as given: the types count on from one another.

        Raises:
            InputError: a type or a node that does not exist.
        """
        begins = self._begins()
        numbers = [np.zeros(0, np.int64)]
        for name, ids in vertices.items():
            if name not in begins:
                raise InputError(f"{name!r} is no type of the graph's: it has {', '.join(begins)}; choose one of them")
            own = wide_ids(ids, f"nodes of {name!r}")
            bad = first_out_of_range(own, self.num_nodes[name])
            if bad >= 0:
                raise InputError(f"node {own[bad]} of type {name!r} does not exist: there are 0 to {self.num_nodes[name] - 1}; drop it")
            numbers.append(own + begins[name])
        return np.concatenate(numbers)

    def by_type(self, numbers: Array) -> dict[str, tuple[Array, Array]]:
        """What ``numbered`` made one number of: for each type that is among them, the nodes (B_t,) and their places (B_t,) in ``numbers``."""
        begins = self._begins()
        kinds = np.searchsorted(list(begins.values()), numbers, side="right") - 1  # of several types that begin alike the last has nodes
        places = {name: np.flatnonzero(kinds == kind) for kind, name in enumerate(begins)}
        return {name: (numbers[own] - begins[name], own) for name, own in places.items() if len(own)}

    def _begins(self) -> dict[str, int]:
        """The number of each type's first node."""
        ends = np.cumsum([0, *self.num_nodes.values()]).tolist()
        return dict(zip(self.num_nodes, ends, strict=False))

    def __repr__(self) -> str:
        relations = ", ".join(f"{relation_name(relation)} ({columns.num_edges:,})" for relation, columns in self.relations.items())
        return f"HeteroGraph(num_nodes={self.num_nodes}, relations: {relations})"

    def _add(self, relation: Relation, columns: RelationColumns) -> None:
        if columns.num_nodes != self.num_nodes[relation[2]]:
            raise InputError(
                f"indptr has {len(columns.indptr):,} entries: it holds one more than the {self.num_nodes[relation[2]]:,} nodes of type "
                f"{relation[2]!r}; rebuild it by HeteroGraph.from_edges"
            )
        self.relations[relation] = columns

    def _name_of(self, relation: Relation) -> str:
        """Return the name of a relation; refuse one that is none, or joins types that there are not."""
        if len(relation) != 3 or any(not isinstance(part, str) or ":" in part for part in relation):
            raise InputError(
                f"{relation} is no relation: it is (source type, name, destination type), texts without a ':' in them; rename it"
            )
        for name in (relation[0], relation[2]):
            if name not in self.num_nodes:
                raise InputError(f"{relation_name(relation)} joins type {name!r}: num_nodes has {', '.join(self.num_nodes)}; add it there")
        return relation_name(relation)


def relation_name(relation: Relation) -> str:
    """``source:name:destination``, as a relation is written in a configuration file."""
    return ":".join(relation)


def _checked_number(name: str, number: int) -> int:
    if not hasattr(number, "__index__") or number < 0:
        raise InputError(f"num_nodes of {name!r} is {number}: a type has 0 nodes or more; correct it")
    return index(number)


def _check_named(relations: Mapping[Relation, Any], **given: Mapping[Relation, Any]) -> None:
    """Refuse values of a relation that there is not."""
    for name, values in given.items():
        for relation in values:
            if relation not in relations:
                raise InputError(
                    f"{name} of {relation}: the graph's relations are {', '.join(map(relation_name, relations))}; name one of them"
                )


def _stored(data: Any, types: Sequence[Any], attr: str | None) -> dict[Any, Any]:
    """What PyG's object holds under a name, by type."""
    return {} if attr is None else {kind: data[kind][attr] for kind in types if attr in data[kind]}


def _ends(data: Any, relation: Relation) -> tuple[Array, Array]:
    """Sources and destinations of an edge type of PyG's."""
    edge_index = getattr(data[relation], "edge_index", None)
    if edge_index is None:
        raise InputError(
            f"{relation_name(relation)} has no edge_index but {', '.join(data[relation].keys()) or 'nothing'}: it holds (2, E) edges; give it "
            "one, as by an adj_t's coo()"
        )
    with error_context(relation_name(relation)):
        return ends_of(edge_index)


def _number(data: Any, name: str) -> int:
    """How many nodes a type of PyG's has, stated or by its rows; edges do not tell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's own, where it cannot tell
        number = data[name].num_nodes
    if number is None:
        raise InputError(
            f"type {name!r} has neither num_nodes nor x: edges do not tell how many nodes there are; set data[{name!r}].num_nodes"
        )
    return int(number)


def _where(*found: Mapping[Any, Any]) -> str:
    """Which types have something of a name."""
    kinds = ("edge types", "node types")[: len(found)]
    return " and ".join(kind for kind, own in zip(kinds, found, strict=True) if own) or f"no {' nor '.join(kinds)}"
