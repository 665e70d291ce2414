"""Data sets: what those on one node type and on several share, and the data set with one node type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_labels, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import InputError, not_carried
from hoptrain.engine.features.checks import (
    as_ids,
    as_rows,
    check_edge_features,
    check_features,
    check_labels,
    check_split,
    label_dtype,
    num_classes_of,
    taken_in,
)
from hoptrain.engine.features.quantized import Rows, files_of, in_memory, narrowed, rows_in
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_new_folder, open_folder

SPLITS = ("train", "val", "test")
MASKS = tuple(f"{split}_mask" for split in SPLITS)
ONLY: Relation = ("", "", "")
"""The relation of a graph with one node type."""


class Contents(NamedTuple):
    """What a data set has by node type and by relation; the only node type of a ``Dataset`` is "", its relation ``ONLY``."""

    num_nodes: Mapping[str, int]
    relations: Mapping[Relation, RelationColumns]
    x: Mapping[str, Rows]
    edge_attr: Mapping[Relation, Rows]
    edge_splits: Mapping[Relation, Mapping[str, Array]]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class BaseDataset(ABC):
    """Labels and splits of the nodes of one type, and features of any; what is kept by type or relation is named by subclasses."""

    kind: ClassVar[str]

    graph: Graph | HeteroGraph
    name: str = "data"
    y: Array | None = None
    splits: Mapping[str, Array] = field(default_factory=dict)
    num_classes: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    validate: InitVar[bool] = True

    @property
    @abstractmethod
    def num_seed_nodes(self) -> int:
        """V: nodes that may be seeds."""

    @abstractmethod
    def contents(self) -> Contents:
        """Return features, edges and splits of edges by node type and relation."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _take_in(self) -> None:
        """Take labels and splits as arrays, masks as ids, and count the classes where their number is not given."""
        y = None if self.y is None else as_labels(taken_in(self.y))
        self._set(y=y, num_classes=self.num_classes or (0 if y is None else num_classes_of(y)))
        self._set(splits={split: as_ids(self.name, split, as_array(ids), self.num_seed_nodes) for split, ids in self.splits.items()})

    def _check(self, edge_y: Array | None = None) -> None:
        own = self.contents()
        for kind, rows in own.x.items():
            check_features(self._named(kind), rows, own.num_nodes[kind])
        for relation, rows in own.edge_attr.items():
            check_edge_features(self._named(relation), rows, own.relations[relation].num_edge_ids())
        check_labels(self.name, self.y, self.num_seed_nodes, self.num_classes)
        for split, ids in self.splits.items():
            check_split(self.name, split, ids, self.num_seed_nodes, self.y)
        for relation, splits in own.edge_splits.items():
            number = own.relations[relation].num_edge_ids() if splits else 0
            for split, ids in splits.items():
                check_split(self._named(relation), split, ids, number, edge_y, "edge")

    def _narrow(self) -> None:
        """Keep labels and splits in the dtypes that folders have."""
        y = None if self.y is None else self.y.astype(label_dtype(self.y), copy=False)
        self._set(y=y, splits=_as_int64(self.splits))

    def _named(self, key: str | Relation) -> str:
        """Return the name of the data set, and of one of its node types or relations."""
        name = key if isinstance(key, str) else relation_name(key)
        return f"{self.name}, {name}" if name.strip(":") else self.name

    def split(self, name: str) -> Array:
        """Return the node ids of a split, (N,) int64.

        Raises:
            InputError: there is no such split, or it is empty.
        """
        if name not in self.splits:
            known = ", ".join(self.splits) or "none at all"
            raise InputError(f"{self.name} has no split {name!r}: it has {known}; choose one of them or give node ids")
        if len(self.splits[name]) == 0:
            raise InputError(f"the {name} split of {self.name} is empty: it needs at least one node; fill it or choose another split")
        return self.splits[name]

    @property
    def is_multilabel(self) -> bool:
        """Whether a node may have several labels."""
        return self.y is not None and self.y.ndim == 2 and not self.is_regression

    @property
    def is_regression(self) -> bool:
        """Whether labels are targets of a regression."""
        return self.y is not None and self.y.dtype.kind == "f"

    def stores(self) -> dict[str, Rows]:
        """Return the rows that there are, by the name that they have for a batch.

        By node ``x`` (``x.TYPE`` where nodes have types) and ``y``, by edge id ``edge_attr`` (``edge_attr.SOURCE:NAME:DESTINATION``).
        """
        own = self.contents()
        by_node = {f"x.{kind}" if kind else "x": rows for kind, rows in own.x.items()}
        by_edge = {"edge_attr" if key == ONLY else f"edge_attr.{relation_name(key)}": rows for key, rows in own.edge_attr.items()}
        return by_node | ({} if self.y is None else {"y": self.y}) | by_edge

    def save(self, path: str | Path, features: str | None = None) -> None:
        """Write the data set as a folder; ``path`` must not exist yet. ``open`` opens it again.

        Args:
            path: the folder.
            features: what those of nodes and edges are written as: int8, int4, float16 or bfloat16; by default as they are.

        Raises:
            InputError: a folder that exists or cannot be written; a format that does not exist, or that the features do not fit into.
        """
        with create_new_folder(Path(path), self.kind) as writer:
            self.write_to(writer, features)

    def write_to(self, writer: FolderWriter, features: str | None = None) -> None:
        """Write the arrays and the header's entries into a new folder; ``features`` as of ``save``."""
        tables = self._tables()
        if features is not None:
            tables = narrowed(self.name, tables, features, writer.create)
        for name, array in self._arrays(tables).items():
            writer.add(name, array)
        writer.meta.update(self.header())

    def arrays(self) -> dict[str, Array]:
        """Return every array by the name of its file."""
        return self._arrays(self._tables())

    def header(self) -> dict[str, Any]:
        """Return what the header of the folder states in addition to the arrays."""
        return {"name": self.name, "num_classes": self.num_classes, "info": dict(self.meta)} | self.graph.header()

    def _tables(self) -> dict[str, Rows]:
        """Return features by the names of their files: by number, since a type may be called anything."""
        own = self.contents()
        return {f"x{end}": rows for end, rows in _numbered(own.x)} | {f"edge_attr{end}": rows for end, rows in _numbered(own.edge_attr)}

    def _arrays(self, tables: Mapping[str, Rows]) -> dict[str, Array]:
        rows = {file: array for name, table in tables.items() for file, array in files_of(name, table).items()}
        splits = {f"split_{split}": ids for split, ids in self.splits.items()}
        of_edges = {f"edges_of{end}_{split}": ids for end, own in _numbered(self.contents().edge_splits) for split, ids in own.items()}
        return self.graph.arrays() | rows | ({} if self.y is None else {"y": self.y}) | splits | of_edges

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> Self:
        """Open a folder memory-mapped: nothing is copied, and processes share the pages.

        Args:
            path: a folder written by ``save``.
            verify: compare checksums; by default for folders up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, cls.kind, verify=verify)
        with complete_header(path), checking(path, verify) as is_new:
            return cls(
                name=meta["name"],
                y=arrays.get("y"),
                splits=with_prefix(arrays, "split_"),
                num_classes=meta["num_classes"],
                meta=meta["info"],
                path=path,
                validate=is_new,
                **cls._parts_in(path, arrays, meta, is_new),
            )

    @classmethod
    @abstractmethod
    def _parts_in(cls, path: Path, arrays: dict[str, Array], meta: Mapping[str, Any], is_new: bool) -> dict[str, Any]:
        """Return the fields of a subclass, of a folder's arrays and its header."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Dataset(BaseDataset):
    """Graph, features, labels and splits of V nodes and of their edges; read-only.

    Constructing one validates it; ``Dataset.open`` trusts the checksums instead. Arrays may be given as NumPy's or torch's; labels and splits of
    another integer dtype are converted. ``Dataset(x=x, y=y, edge_index=edge_index, splits={"train": train_mask})`` is all that training needs.

    Attributes:
        name: for messages and logs.
        graph: the graph; or give ``edge_index``.
        x: (V, F) features as stored (float32, float16, ``BFLOAT16``, uint8 or another dtype of real numbers), ``QuantizedRows``, or None.
        edge_attr: (R, D) features of the edges as stored, of any dtype that x may have, or None: row i is of the edge whose id (``Graph.edge_ids``)
            is i, so that they stand in the order of ``edge_index``; R is more than the largest id. (R,) is taken as (R, 1).
        y: (V,) int64 classes in [0, num_classes), -1 for no label; or (V, num_classes) uint8 of 0 and 1 for several labels, int8 with -1
            where some are unknown; or (V,) or (V, num_classes) float32 targets of a regression, NaN for none; or None.
        splits: node ids, (N,) int64, by name: ``train``, ``val``, ``test`` or any other identifier; given as ids or as masks (V,) of bool.
        num_classes: number of classes (or targets), 0 without labels; where 0 is given, what the labels have.
        edge_y: (R,) labels of edges by id, as those of nodes, but that floating ones are always targets; or None.
        edge_splits: edge ids, (N,) int64, by name: edges to learn from and to be judged by, where a task is about edges or links.
        negatives: pairs of nodes that are no links, to judge links by, by the name of a split with N edges: (2, M) int64 for all of them, or
            (2, N, K), K for each; sources above destinations.
        meta: source, licence, where the split comes from: anything JSON can hold.
        path: the folder it was opened from, or None.
        validate: an argument only: False for arrays that are right by construction.
        edge_index: an argument only: edges (2, E), a row of sources and one of destinations, in place of ``graph``; V is then the number of rows
            of x or y, else the largest id plus one.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset
        >>> data = Dataset(edge_index=[[0, 1, 2, 2], [1, 2, 0, 1]], x=np.eye(3), y=np.array([0, 1, 1]), splits={"train": np.array([0, 2])})
        >>> data
        Dataset(data, Graph(num_nodes=3, num_edges=4, is_sorted=True), num_features=3, num_classes=2, splits: train (2))
    """

    kind: ClassVar[str] = "dataset"

    graph: Graph = None  # type: ignore[assignment]  # never None once it is made
    x: Rows | None = None
    edge_attr: Rows | None = None
    edge_y: Array | None = None
    edge_splits: Mapping[str, Array] = field(default_factory=dict)
    negatives: Mapping[str, Array] = field(default_factory=dict)
    edge_index: InitVar[Any] = None

    def __post_init__(self, validate: bool, edge_index: Any) -> None:
        if validate:
            self._take_graph(edge_index)
            self._take_in()
            self._check(self.edge_y)
            self._check_edges()
        self._narrow()
        edge_y = None if self.edge_y is None else self.edge_y.astype(label_dtype(self.edge_y), copy=False)
        self._set(edge_y=edge_y, edge_splits=_as_int64(self.edge_splits), negatives=_as_int64(self.negatives))

    def _take_graph(self, edge_index: Any) -> None:
        """Take edges as a graph, and what they and the nodes have as arrays."""
        if (self.graph is None) == (edge_index is None):
            raise InputError(f"{self.name} has {'no edges' if edge_index is None else 'a graph and an edge_index'}: give one of the two")
        x, edge_attr = taken_in(self.x), as_rows(self.edge_attr)
        rows = next((len(array) for array in (x, None if self.y is None else as_array(self.y)) if array is not None and array.ndim), None)
        graph = self.graph if edge_index is None else Graph.from_edge_index(edge_index, rows)
        if not isinstance(graph, Graph):
            raise InputError(
                f"{self.name}: graph is a {type(graph).__name__}: give a Graph, or the whole as Dataset.from_pyg or from_dgl take it"
            )
        edge_splits = {
            name: as_ids(self.name, name, as_array(ids), graph.num_edge_ids(), "edges") for name, ids in self.edge_splits.items()
        }
        self._set(graph=graph, x=x, edge_attr=edge_attr, edge_splits=edge_splits)
        self._set(
            edge_y=None if self.edge_y is None else as_array(self.edge_y),
            negatives={split: as_array(pairs) for split, pairs in self.negatives.items()},
        )

    def _check_edges(self) -> None:
        """Refuse labels of edges, and negatives, that the graph cannot have."""
        if self.edge_y is not None:
            number = max(self.graph.num_edge_ids(), len(self.edge_y))
            check_labels(f"{self.name}, edges", self.edge_y, number, num_classes_of(self.edge_y), "edge")
        for split, pairs in self.negatives.items():
            number = len(self.edge_splits.get(split, ()))
            if pairs.ndim not in (2, 3) or len(pairs) != 2 or not is_integer(pairs.dtype) or (pairs.ndim == 3 and pairs.shape[1] != number):
                raise InputError(
                    f"{self.name}: negatives of {split} are {pairs.dtype} of shape {pairs.shape}: they are pairs (2, M), or (2, {number}, K) "
                    f"for the {number:,} edges of this split; correct them"
                )
            if pairs.size and not 0 <= pairs.min() <= pairs.max() < self.graph.num_nodes:
                raise InputError(f"{self.name}: negatives of {split} leave the nodes 0 to {self.graph.num_nodes - 1}: correct them")

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} ({len(ids):,})" for split, ids in self.splits.items()) or "none"
        return f"Dataset({self.name}, {self.graph}, num_features={self.num_features}, num_classes={self.num_classes}, splits: {splits})"

    @property
    def num_features(self) -> int:
        """F, 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_edge_features(self) -> int:
        """D, 0 without features of edges."""
        return 0 if self.edge_attr is None else int(self.edge_attr.shape[1])

    @property
    def num_seed_nodes(self) -> int:
        """V: nodes that may be seeds."""
        return self.graph.num_nodes

    def contents(self) -> Contents:
        """Return features, edges and splits of edges by node type, which is "", and by relation, which is ``ONLY``."""
        x = {} if self.x is None else {"": self.x}
        edge_attr = {} if self.edge_attr is None else {ONLY: self.edge_attr}
        return Contents({"": self.graph.num_nodes}, {ONLY: self.graph}, x, edge_attr, {ONLY: self.edge_splits})

    def in_memory(self) -> Dataset:
        """Return the same data set with graph and features in memory of this process, in huge pages where the system grants them.

        See ``Graph.in_memory``: for sampling within one process. Features lie there in addition to what the system caches of their file.
        """
        return replace(self, graph=self.graph.in_memory(), x=in_memory(self.x), edge_attr=in_memory(self.edge_attr), validate=False)

    def _arrays(self, tables: Mapping[str, Rows]) -> dict[str, Array]:
        edge_y = {} if self.edge_y is None else {"edge_y": self.edge_y}
        return BaseDataset._arrays(self, tables) | edge_y | {f"negatives_of_{split}": pairs for split, pairs in self.negatives.items()}

    @classmethod
    def _parts_in(cls, path: Path, arrays: dict[str, Array], meta: Mapping[str, Any], is_new: bool) -> dict[str, Any]:
        return {
            "graph": Graph.from_arrays(arrays, meta["is_sorted"], is_new),
            "x": rows_in(arrays, "x"),
            "edge_attr": rows_in(arrays, "edge_attr"),
            "edge_y": arrays.get("edge_y"),
            "edge_splits": with_prefix(arrays, "edges_of_"),
            "negatives": with_prefix(arrays, "negatives_of_"),
        }

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "data", time_attr: str | None = None) -> Dataset:
        """Read a homogeneous ``torch_geometric.data.Data``: ``edge_index``, and ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask`` where it has them.

        Labels (V, 1) are taken as (V,), floating ones as the integers that they are. Edges keep their numbers (``Graph.edge_ids``) and their
        ``edge_weight``, which becomes ``Graph.weights``, and ``edge_attr``. ``meta["not_carried"]`` and a warning name what is left out.

        Args:
            data: the graph.
            name: for messages.
            time_attr: what times of edges or of nodes are called, as in ``Graph.from_pyg``.

        Raises:
            InputError: it has no edge_index, or something that a data set cannot hold, as an edge_weight below 0.
        """
        graph = Graph.from_pyg(data, time_attr=time_attr)
        left = {*data.keys()} - {"edge_index", "edge_weight", "edge_attr", "x", "y", "num_nodes", time_attr, *MASKS}
        meta = not_carried(name, "Dataset", left, "; time_attr names times")
        return cls(name=name, graph=graph, x=data.x, y=data.y, edge_attr=data.edge_attr, splits=masks_in(data), meta=meta)

    @classmethod
    def from_dgl(cls, graph: Any, *, name: str = "data") -> Dataset:
        """Read a homogeneous ``dgl.DGLGraph`` with ``feat``, ``label`` and masks in ``ndata``, as DGL's data sets have them; else as ``from_pyg``.

        Of ``edata`` it takes ``feat`` as ``edge_attr``. Weights have no name of their own there: ``Graph.from_edges`` takes them beside ``graph.edges()``.
        """
        made, nodes, edges = Graph.from_dgl(graph), graph.ndata, getattr(graph, "edata", {})
        meta = not_carried(name, "Dataset", {*nodes} - {"feat", "label", *MASKS} | {*edges} - {"feat"})
        options = {"x": nodes.get("feat"), "y": nodes.get("label"), "edge_attr": edges.get("feat"), "splits": masks_in(nodes)}
        return cls(name=name, graph=made, meta=meta, **options)


def masks_in(held: Any) -> dict[str, Array]:
    """Return the masks (V,) that an object of another library holds under the names of ``MASKS``, by split."""
    masks = {split: held.get(name) for split, name in zip(SPLITS, MASKS, strict=True)}
    return {split: as_array(mask).astype(bool) for split, mask in masks.items() if mask is not None}


def with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin so, by the rest of the name."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _numbered(by_key: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield how the names of an entry's files end, and the entry: by number, but for the only type or relation."""
    yield from (("" if key in ("", ONLY) else f"_{number}", value) for number, (key, value) in enumerate(by_key.items()))


def _as_int64(by_split: Mapping[str, Array]) -> dict[str, Array]:
    return {split: ids.astype(np.int64, copy=False) for split, ids in by_split.items()}
