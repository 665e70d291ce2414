"""A data set on a typed graph: features by type, labels and splits of the vertices of one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_labels
from hoptrain.engine.dataset import (
    SPLITS,
    as_ids,
    check_labels,
    check_split,
    check_targets,
    label_dtype,
    num_classes_of,
    num_edge_ids,
    split_of,
)
from hoptrain.engine.errors import InputError, not_carried
from hoptrain.engine.features.checks import check_edge_features, check_features, taken_in
from hoptrain.engine.features.quantized import Rows, files_of, narrowed, rows_in
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_new_folder, open_folder

KIND = "hetero-dataset"
_GRAPH = "graph"
"""The folder of the graph, in that of its data set."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroDataset:
    """Graph, features, labels and splits; read-only, validated when it is made.

    Attributes:
        name: for messages and logs.
        graph: the typed graph.
        seed_type: the type of the vertices that are trained on; V of them.
        x: (V_t, F_t) features as stored, or ``QuantizedRows``, for the types t that have some; all arrays may be NumPy's or torch's.
        edge_attr: (R, D) features of edges as stored, of any dtype that x may have, for the relations that have some: row i is of the edge whose id
            (``RelationColumns.edge_ids``) is i; (R,) is one feature.
        y: (V,) integer classes, -1 for no label; or (V, C) of 0 and 1 for several labels; or (V,) or (V, C) float32 targets of a regression, NaN
            for none; or None.
        splits: vertex ids of ``seed_type``, (N,), or masks (V,), by name: ``train``, ``val``, ``test`` or any other identifier.
        edge_splits: edge ids (N,) int64 of a relation by name, ``train``, ``val``, ``test``, by relation: links to learn from and to be judged by.
        num_classes: number of classes (or targets), 0 without labels; where 0 is given, what the labels have.
        meta: source, licence, where the split comes from: anything JSON can hold.
        path: the folder it was opened from, or None.
        validate: an argument only: False for arrays that are right by construction.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import HeteroDataset, HeteroGraph
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])})
        >>> HeteroDataset(graph=graph, seed_type="item", x={"user": np.eye(2)}, y=np.array([0, 1, 1]), splits={"train": np.array([0, 2])})
        HeteroDataset(data, HeteroGraph(num_nodes={'user': 2, 'item': 3}, relations: user:buys:item (3)),
        x of user, seeds of item, splits: train (2))
    """

    graph: HeteroGraph
    seed_type: str
    x: Mapping[str, Rows] = field(default_factory=dict)
    edge_attr: Mapping[Relation, Rows] = field(default_factory=dict)
    y: Array | None = None
    splits: Mapping[str, Array] = field(default_factory=dict)
    edge_splits: Mapping[Relation, Mapping[str, Array]] = field(default_factory=dict)
    name: str = "data"
    num_classes: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    validate: InitVar[bool] = True

    def __post_init__(self, validate: bool) -> None:
        if validate:
            self._take_in()
            self._check()

    def _check(self) -> None:
        known = ", ".join(self.graph.num_nodes)
        for key in (self.seed_type, *self.x):
            if key not in self.graph.num_nodes:
                what = "seed_type" if key == self.seed_type else "x of a type"
                raise InputError(f"{self.name}: {what} is {key!r}: the graph has {known}; choose one of them")
        for key, rows in self.x.items():
            check_features(f"{self.name}, {key}", rows, self.graph.num_nodes[key])
        for relation, rows in self.edge_attr.items():
            columns = self.graph.relations.get(relation)
            if columns is None:
                relations = ", ".join(map(relation_name, self.graph.relations))
                raise InputError(f"{self.name}: edge_attr of {relation}: the graph has the relations {relations}; choose one of them")
            check_edge_features(f"{self.name}, {relation_name(relation)}", rows, num_edge_ids(columns))
        for relation, own in self.edge_splits.items():
            for split, ids in own.items():
                check_split(
                    f"{self.name}, {relation_name(relation)}", split, ids, num_edge_ids(self.graph.relations[relation]), None, "edge"
                )
        check = check_targets if self.y is not None and self.y.dtype.kind == "f" else check_labels
        check(self.name, self.y, self.num_seed_nodes, self.num_classes)
        for split, ids in self.splits.items():
            check_split(self.name, split, ids, self.num_seed_nodes, self.y)
        for one, other in combinations(self.splits, 2):
            of_one_family = {one.partition("_")[0], other.partition("_")[0]} <= set(SPLITS) and one.partition("_")[2] == other.partition(
                "_"
            )[2]
            both: Array = np.intersect1d(self.splits[one], self.splits[other]) if of_one_family else np.zeros(0, np.int64)
            if len(both):
                raise InputError(
                    f"{self.name}: vertex {both[0]} is in the splits {one} and {other}: they share none; drop it from one of them"
                )
        if self.y is not None:
            object.__setattr__(self, "y", self.y.astype(label_dtype(self.y), copy=False))
        object.__setattr__(self, "splits", {split: ids.astype(np.int64, copy=False) for split, ids in self.splits.items()})

    def _take_in(self) -> None:
        """Tensors as arrays, masks as ids, labels as int64 where they are classes."""
        for field_name in ("x", "edge_attr", "splits", "edge_splits"):
            if not isinstance(getattr(self, field_name), Mapping):
                raise InputError(
                    f"{self.name}: {field_name} is no mapping: it is a dictionary, x by type, edge_attr by relation, splits by name, edge_splits by "
                    "relation and name; give one"
                )
        number = self.graph.num_nodes.get(self.seed_type, 0)
        object.__setattr__(self, "x", {key: taken_in(rows) for key, rows in self.x.items()})
        of_edges = {relation: taken_in(rows) for relation, rows in self.edge_attr.items()}
        object.__setattr__(self, "edge_attr", {key: rows[:, None] if rows.ndim == 1 else rows for key, rows in of_edges.items()})
        object.__setattr__(self, "splits", {name: as_ids(self.name, name, as_array(ids), number) for name, ids in self.splits.items()})
        object.__setattr__(self, "edge_splits", {relation: self._edge_ids(relation, own) for relation, own in self.edge_splits.items()})
        if self.y is not None:
            y = as_labels(as_array(self.y))
            object.__setattr__(self, "y", y)
            if not self.num_classes and y.ndim in (1, 2) and y.dtype.kind in "iubf":
                object.__setattr__(self, "num_classes", num_classes_of(y))

    def _edge_ids(self, relation: Relation, splits: Mapping[str, Any]) -> dict[str, Array]:
        """Splits of a relation's edges as int64 ids."""
        columns = self.graph.relations.get(relation)
        if columns is None or not isinstance(splits, Mapping):
            known = ", ".join(map(relation_name, self.graph.relations))
            raise InputError(f"{self.name}: edge_splits of {relation}: ids by name, of one of the relations {known}; correct it")
        name = f"{self.name}, {relation_name(relation)}"
        made = {split: as_ids(name, split, as_array(ids), num_edge_ids(columns), "edges") for split, ids in splits.items()}
        return {split: ids.astype(np.int64, copy=False) for split, ids in made.items()}

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} ({len(ids):,})" for split, ids in self.splits.items()) or "none"
        return f"HeteroDataset({self.name}, {self.graph}, x of {', '.join(self.x) or 'none'}, seeds of {self.seed_type}, splits: {splits})"

    @property
    def num_seed_nodes(self) -> int:
        """V: vertices that may be seeds."""
        return self.graph.num_nodes[self.seed_type]

    def split(self, name: str) -> Array:
        """Vertex ids of a split, (N,) int64.

        Raises:
            InputError: there is no such split, or it is empty.
        """
        return split_of(self.name, self.splits, name)

    def stores(self) -> dict[str, Rows]:
        """Rows by the name that they have for a batch: by vertex ``x.TYPE`` and ``y``, by edge id ``edge_attr.SOURCE:NAME:DESTINATION``."""
        of_edges = {f"edge_attr.{relation_name(relation)}": rows for relation, rows in self.edge_attr.items()}
        return {f"x.{key}": rows for key, rows in self.x.items()} | ({} if self.y is None else {"y": self.y}) | of_edges

    def with_reverse(self) -> HeteroDataset:
        """With each relation also turned round, in memory: see ``HeteroGraph.with_reverse``. An edge turned round has the features of its original."""
        graph = self.graph.with_reverse()
        turned = dict(zip(list(graph.relations)[len(self.graph.relations) :], self.graph.relations, strict=True))
        edge_attr = {**self.edge_attr, **{new: self.edge_attr[old] for new, old in turned.items() if old in self.edge_attr}}
        return replace(self, graph=graph, edge_attr=edge_attr, meta={**self.meta, "reverse": "added"}, path=None, validate=False)

    def save(self, path: str | Path, features: str | None = None) -> None:
        """Write the data set as a folder; ``path`` must not exist yet. Opened again with ``HeteroDataset.open``; arguments as of ``Dataset.save``."""
        with create_new_folder(Path(path), KIND) as writer:
            self.write_to(writer, features)

    def write_to(self, writer: FolderWriter, features: str | None = None) -> None:
        """Write the graph, as a folder in the new one, the arrays, and what the header states; ``features`` as of ``save``."""
        self.graph.save(writer.folder / _GRAPH)
        tables = self._tables()
        if features is not None:
            tables = narrowed(self.name, tables, features, writer.create)
        for name, array in self._arrays(tables).items():
            writer.add(name, array)
        facts = {"name": self.name, "seed_type": self.seed_type, "num_classes": self.num_classes, "info": dict(self.meta)}
        by_relation = {"edge_features": self.edge_attr, "edge_splits": self.edge_splits}
        writer.meta.update(
            facts, features=list(self.x), **{name: [list(relation) for relation in own] for name, own in by_relation.items()}
        )

    def _tables(self) -> dict[str, Rows]:
        """Features by the number of their type or relation among those in the header, since a type may be called anything."""
        of_edges = {f"edge_attr_{number}": rows for number, rows in enumerate(self.edge_attr.values())}
        return {f"x_{number}": rows for number, rows in enumerate(self.x.values())} | of_edges

    def _arrays(self, tables: Mapping[str, Rows]) -> dict[str, Array]:
        """By the name of its file, with features ``tables``."""
        x = {file: array for name, rows in tables.items() for file, array in files_of(name, rows).items()}
        of_edges = {f"edge_split_{number}_{name}": ids for number, own in enumerate(self.edge_splits.values()) for name, ids in own.items()}
        return x | ({} if self.y is None else {"y": self.y}) | {f"split_{name}": ids for name, ids in self.splits.items()} | of_edges

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> HeteroDataset:
        """Open a folder memory-mapped: nothing is copied, and processes share the pages.

        Args:
            path: a folder written by ``save``.
            verify: compare checksums; by default for arrays, and a graph, of up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, KIND, verify=verify)
        with complete_header(path), checking(path, verify) as is_new:
            return cls(
                name=meta["name"],
                graph=HeteroGraph.open(path / _GRAPH, verify=verify),
                seed_type=meta["seed_type"],
                x={name: rows_in(arrays, f"x_{number}") for number, name in enumerate(meta["features"])},
                edge_attr={
                    (source, name, destination): rows_in(arrays, f"edge_attr_{number}")
                    for number, (source, name, destination) in enumerate(meta.get("edge_features", []))  # older folders have none
                },
                y=arrays.get("y"),
                splits=_with_prefix(arrays, "split_"),
                edge_splits={tuple(own): _with_prefix(arrays, f"edge_split_{i}_") for i, own in enumerate(meta.get("edge_splits", []))},
                num_classes=meta["num_classes"],
                meta=meta["info"],
                path=path,
                validate=is_new,
            )

    @classmethod
    def from_dgl(cls, graph: Any, seed_type: str | None = None, *, name: str = "data") -> HeteroDataset:
        """A ``dgl.DGLGraph`` with its types: of each type and relation ``feat`` where it has some; ``label`` and masks are those of ``seed_type``.

        By default that is the only type with a ``label``. Edges keep DGL's ids; weights have no name of their own there: ``HeteroGraph.from_edges`` takes them.
        What is left ``meta["not_carried"]`` and a warning name.

        Raises:
            InputError: as ``from_pyg``.
        """
        held = {kind: graph.nodes[kind].data for kind in graph.ntypes}
        seed_type = _seed_type(name, [kind for kind, own in held.items() if "label" in own], seed_type)
        seeds = held.get(seed_type, {})
        of_edges = {relation: graph.edges[relation].data for relation in map(tuple, graph.canonical_etypes)}
        left = {key: {*own} - {"feat"} for key, own in (held | of_edges).items()}
        return cls(
            name=name,
            graph=HeteroGraph.from_dgl(graph),
            seed_type=seed_type,
            x={kind: own["feat"] for kind, own in held.items() if "feat" in own},
            edge_attr={relation: own["feat"] for relation, own in of_edges.items() if "feat" in own},
            y=seeds.get("label"),
            splits={split: as_array(seeds[f"{split}_mask"]).astype(bool) for split in SPLITS if f"{split}_mask" in seeds},
            meta=_left_out(name, left, seed_type, "label"),
        )

    @classmethod
    def from_pyg(
        cls, data: Any, seed_type: str | None = None, *, name: str = "data", weight_attr: str | None = None, time_attr: str | None = None
    ) -> HeteroDataset:
        """A ``torch_geometric.data.HeteroData``: its edges, of each type ``x`` and of each relation ``edge_attr`` where it has some.

        Labels ``y`` and ``train_mask``, ``val_mask``, ``test_mask`` are those of ``seed_type``, by default the only type with a ``y``. What is left
        ``meta["not_carried"]`` and a warning name.

        Args:
            data: the graph.
            seed_type: the type of the vertices that are trained on.
            name: for messages.
            weight_attr: what weights of edges are called, as in ``HeteroGraph.from_pyg``.
            time_attr: what times of edges or of vertices are called, as there.

        Raises:
            InputError: no type has labels, or several have, and none was named; something that a data set cannot hold.
        """
        graph = HeteroGraph.from_pyg(data, weight_attr=weight_attr, time_attr=time_attr)
        labelled = [kind for kind in data.node_types if getattr(data[kind], "y", None) is not None]
        seed_type = _seed_type(name, labelled, seed_type)
        seeds = data[seed_type] if seed_type in data.node_types else None  # else it would be added there
        masks = {split: getattr(seeds, f"{split}_mask", None) for split in SPLITS}
        left = {kind: {*data[kind].keys()} - {"x", "num_nodes", time_attr} for kind in data.node_types}
        left |= {kind: {*data[kind].keys()} - {"edge_index", "edge_attr", weight_attr, time_attr} for kind in data.edge_types}
        return cls(
            name=name,
            graph=graph,
            seed_type=seed_type,
            x={kind: x for kind in data.node_types if (x := getattr(data[kind], "x", None)) is not None},
            edge_attr={
                tuple(kind): rows
                for kind in data.edge_types
                if "edge_attr" not in (weight_attr, time_attr) and (rows := getattr(data[kind], "edge_attr", None)) is not None
            },
            y=getattr(seeds, "y", None),
            splits={split: as_array(mask).astype(bool) for split, mask in masks.items() if mask is not None},
            meta=_left_out(name, left, seed_type, "y", "; weight_attr and time_attr name weights and times"),
        )


def _with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Those whose names begin so, by what follows."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _left_out(name: str, held: Mapping[Any, set[Any]], seed_type: str, labels: str, remedy: str = "") -> dict[str, Any]:
    """Return ``not_carried`` of what another library's object holds by type; labels and masks of ``seed_type`` are carried."""
    of_seeds = {labels, *(f"{split}_mask" for split in SPLITS)}
    left = (
        f"{kind if isinstance(kind, str) else relation_name(kind)} {key}"
        for kind, keys in held.items()
        for key in (keys - of_seeds if kind == seed_type else keys)
    )
    return not_carried(name, "HeteroDataset", left, remedy)


def _seed_type(name: str, labelled: list[str], seed_type: str | None) -> str:
    """The type that is trained on: the one that was named, or the only one of those with labels."""
    if seed_type is None and len(labelled) != 1:
        raise InputError(f"{name}: labels of {', '.join(labelled) or 'no type'}: vertices of one type are trained on; name it by seed_type")
    return seed_type or labelled[0]
