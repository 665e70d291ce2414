"""The data set with one node type, ``Dataset``, and ``BaseDataset``, which it shares with ``HeteroDataset``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_labels, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import InputError, an, explain_keywords, not_carried
from hoptrain.engine.features.attributes import Attributes
from hoptrain.engine.features.checks import (
    as_feature_array,
    as_ids,
    as_rows,
    check_edge_features,
    check_features,
    check_labels,
    check_split,
    label_dtype,
    num_classes_of,
)
from hoptrain.engine.features.quantized import Rows, files_of, in_memory, narrow_tables, rows_in
from hoptrain.engine.features.splits import MASKS, by_split_name, labelled_nodes, masks_in, random_splits, split_name
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_new_folder, open_folder

ONLY: Relation = ("", "", "")
"""The only relation of a homogeneous graph, for code that handles homogeneous and heterogeneous graphs alike."""


class Contents(NamedTuple):
    """A data set's contents by node type and relation. The only node type of a ``Dataset`` is "", its only relation ``ONLY``."""

    num_nodes: Mapping[str, int]
    relations: Mapping[Relation, RelationColumns]
    x: Mapping[str, Rows]
    edge_attr: Mapping[Relation, Rows]
    edge_splits: Mapping[Relation, Mapping[str, Array]]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class BaseDataset(ABC):
    """The base of all data sets: labels and splits of one node type. Subclasses add graph, features and edge splits."""

    kind: ClassVar[str]
    random_splits_by: ClassVar[str]
    """Option of the command line that makes random splits, for messages."""

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
        """Number of nodes of the type that has labels and splits, V."""

    @abstractmethod
    def contents(self) -> Contents:
        """Return features, edges and edge splits by node type and relation."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _normalise_labels_and_splits(self) -> None:
        """Convert labels to arrays and splits to node ids, and count the classes if ``num_classes`` is 0."""
        y = None if self.y is None else as_labels(self.name, as_feature_array(self.y), self.num_classes)
        self._set(y=y, num_classes=self.num_classes or (0 if y is None else num_classes_of(y)))
        splits = by_split_name(self.name, self.splits)
        self._set(splits={split: as_ids(self.name, split, as_array(ids), self.num_seed_nodes) for split, ids in splits.items()})

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
        """Convert labels and splits to the dtypes of stored data sets."""
        y = None if self.y is None else self.y.astype(label_dtype(self.y), copy=False)
        self._set(y=y, splits=_as_int64(self.splits))

    def _named(self, key: str | Relation) -> str:
        """Return a label for messages: the data set's name and that of a node type or relation."""
        name = key if isinstance(key, str) else relation_name(key)
        return f"{self.name}, {name}" if name.strip(":") else self.name

    def split(self, name: str) -> Array:
        """Return the node ids of a split, (N,) int64.

        Raises:
            InputError: the split does not exist or is empty.
        """
        name = split_name(name)
        if not self.splits:
            own = "to test all labelled nodes, read the tables with --split test; or " * (name == "test")
            raise InputError(
                f"{self.name} has no split {name!r}: it has none at all; {own}make random ones by with_random_splits() in Python or by "
                f"{self.random_splits_by}, or give node ids"
            )
        if name not in self.splits:
            raise InputError(f"{self.name} has no split {name!r}: it has {', '.join(self.splits)}; choose one of them or give node ids")
        if len(self.splits[name]) == 0:
            raise InputError(f"the {name} split of {self.name} is empty: it needs at least one node; fill it or choose another split")
        return self.splits[name]

    def with_random_splits(self, train: float = 0.6, val: float = 0.2, *, seed: int = 0) -> Self:
        """Return a copy with random splits ``train``, ``val`` and ``test`` of the labelled nodes, or of all nodes without labels.

        The splits are the same on every machine.

        Args:
            train: fraction of the nodes for training.
            val: fraction of the nodes for validation; the remaining nodes are for testing.
            seed: seed of the random choice.

        Raises:
            InputError: a share is out of range, or there are fewer than three nodes.
        """
        if not (0 < train < 1 and 0 <= val < 1 and train + val <= 1):
            raise InputError(
                f"train is {train} and val {val}: shares must be in (0, 1), and their sum at most 1; give for instance 0.6 and 0.2"
            )
        nodes, note = labelled_nodes(self.name, self.y, self.num_seed_nodes), f"random {train:g}/{val:g} of the labelled nodes, seed {seed}"
        return replace(self, splits=random_splits(nodes, train, val, seed), meta={**self.meta, "split": note}, validate=False)

    @property
    def is_multilabel(self) -> bool:
        """True if a node may have several labels."""
        return self.y is not None and self.y.ndim == 2 and not self.is_regression

    @property
    def is_regression(self) -> bool:
        """True if the labels are regression targets."""
        return self.y is not None and self.y.dtype.kind == "f"

    def stores(self) -> dict[str, Rows]:
        """Return all feature and label tables by the names that batches use.

        Node tables are ``x`` (``x.TYPE`` for several node types) and ``y``. The row of an edge in ``edge_attr`` (``edge_attr.SOURCE:NAME:DESTINATION``) is its
        edge id.
        """
        own = self.contents()
        by_node = {f"x.{kind}" if kind else "x": rows for kind, rows in own.x.items()}
        by_edge = {"edge_attr" if key == ONLY else f"edge_attr.{relation_name(key)}": rows for key, rows in own.edge_attr.items()}
        return by_node | ({} if self.y is None else {"y": self.y}) | by_edge

    def save(self, path: str | Path, features: str | None = None) -> None:
        """Write the data set into a new folder. ``path`` must not exist yet; ``open`` reads it.

        Args:
            path: the new folder.
            features: storage format of node and edge features: int8, int4, float16 or bfloat16; by default their dtype is kept.

        Raises:
            InputError: the folder exists or cannot be written, or the format is unknown or cannot represent the features.
        """
        with create_new_folder(Path(path), self.kind) as writer:
            self.write_to(writer, features)

    def write_to(self, writer: FolderWriter, features: str | None = None) -> None:
        """Write arrays and header entries with ``writer``. ``features`` is the storage format, as in ``save``."""
        tables = self._tables()
        if features is not None:
            tables = narrow_tables(self.name, tables, features, writer.create)
        for name, array in self._arrays(tables).items():
            writer.add(name, array)
        writer.meta.update(self.header())

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by their file names."""
        return self._arrays(self._tables())

    def header(self) -> dict[str, Any]:
        """Return the entries that ``save`` writes to the folder's header."""
        return {"name": self.name, "num_classes": self.num_classes, "info": dict(self.meta)} | self.graph.header()

    def _tables(self) -> dict[str, Rows]:
        """Return feature tables by file name. Types are numbered, because a type's name may not be a valid file name."""
        own = self.contents()
        return {f"x{end}": rows for end, rows in _numbered(own.x)} | {f"edge_attr{end}": rows for end, rows in _numbered(own.edge_attr)}

    def _arrays(self, tables: Mapping[str, Rows]) -> dict[str, Array]:
        rows = {file: array for name, table in tables.items() for file, array in files_of(name, table).items()}
        splits = {f"split_{split}": ids for split, ids in self.splits.items()}
        of_edges = {f"edges_of{end}_{split}": ids for end, own in _numbered(self.contents().edge_splits) for split, ids in own.items()}
        return self.graph.arrays() | rows | ({} if self.y is None else {"y": self.y}) | splits | of_edges

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> Self:
        """Open a folder as memory-mapped arrays: nothing is copied, and processes share the pages.

        Args:
            path: a folder written by ``save``.
            verify: whether to compare checksums; by default only for folders up to 256 MiB.

        Raises:
            InputError: the folder was not written by ``save``, or is truncated or altered.
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
        """Return the subclass's fields, read from a folder's arrays and header."""


@explain_keywords
@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Dataset(BaseDataset):
    """A data set of V nodes with one node type: graph, features, labels and splits; read-only.

    The constructor validates its arguments; ``Dataset.open`` relies on checksums instead. Arrays may be NumPy arrays or torch tensors. Labels and
    splits of other integer dtypes are converted. Training needs no more than ``Dataset(x=x, y=y, edge_index=edge_index, splits={"train": train_mask})``.

    Attributes:
        name: name of the data set in messages and logs.
        graph: the graph; None if ``edge_index`` is given.
        x: (V, F) features as stored (float32, float16, ``BFLOAT16``, uint8 or another dtype of real numbers), ``QuantizedRows``, or None.
        edge_attr: (R, D) edge features as stored, of any dtype that x may have, or None. Row i belongs to the edge with id i
            (``Graph.edge_ids``), so rows follow the order of ``edge_index``. R must exceed the largest id. (R,) is taken as (R, 1).
        y: (V,) int64 classes in [0, num_classes), -1 for no label; or (V, num_classes) uint8 of 0 and 1 for several labels, int8 with -1
            where some are unknown; or (V,) or (V, num_classes) float32 regression targets, NaN for none; or None.
        splits: node ids (N,) int64 by name: ``train``, ``val``, ``test`` or any other identifier. Boolean masks (V,) are converted. Synonyms of the
            first three names, such as ``valid``, ``dev`` or ``Training``, are replaced by them.
        num_classes: number of classes or targets; 0 to count them from the labels, and 0 without labels. Floats (V,) that are all whole numbers are
            classes, except with 1, which makes them regression targets.
        edge_y: (R,) edge labels by edge id, encoded as ``y``, except that floats are always regression targets; or None.
        edge_splits: edge ids (N,) int64 by split name, for tasks on edges or links: edges to train on and to evaluate.
        negatives: negative pairs of nodes for link evaluation, by the name of a split with N edges: (2, M) int64 for the whole split, or
            (2, N, K) with K for each edge. Row 0 has sources, row 1 destinations.
        meta: source, licence, origin of the split and the like: anything that JSON can represent.
        path: the folder that the data set was opened from, or None.
        validate: constructor argument only: False skips the checks, for arrays that are known to be valid.
        edge_index: constructor argument only: edges (2, E), sources and destinations, instead of ``graph``. V is then the number of rows
            of x or y, else the largest node id plus one.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset
        >>> data = Dataset(edge_index=[[0, 1, 2, 2], [1, 2, 0, 1]], x=np.eye(3), y=np.array([0, 1, 1]), splits={"train": np.array([0, 2])})
        >>> data
        Dataset(data, Graph(num_nodes=3, num_edges=4, is_sorted=True), num_features=3, num_classes=2, splits: train (2))
    """

    kind: ClassVar[str] = "dataset"
    random_splits_by: ClassVar[str] = "'hoptrain data import --split random'"

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
            self._normalise_labels_and_splits()
            self._check(self.edge_y)
            self._check_edges()
        self._narrow()
        edge_y = None if self.edge_y is None else self.edge_y.astype(label_dtype(self.edge_y), copy=False)
        self._set(edge_y=edge_y, edge_splits=_as_int64(self.edge_splits), negatives=_as_int64(self.negatives))

    def _take_graph(self, edge_index: Any) -> None:
        """Build the graph if ``edge_index`` is given, and convert features, edge labels and negatives to arrays."""
        if (self.graph is None) == (edge_index is None):
            raise InputError(
                f"{self.name} has {'neither graph nor edge_index' if edge_index is None else 'both graph and edge_index'}: give one of the two"
            )
        x, edge_attr = as_feature_array(self.x), as_rows(self.edge_attr)
        rows = next((len(array) for array in (x, None if self.y is None else as_array(self.y)) if array is not None and array.ndim), None)
        graph = self.graph if edge_index is None else Graph.from_edge_index(edge_index, rows)
        if not isinstance(graph, Graph):
            raise InputError(
                f"{self.name}: graph is {an(type(graph).__name__)}: it must be a Graph; use Dataset.from_pyg or Dataset.from_dgl for objects of these libraries"
            )
        edge_splits = {
            name: as_ids(self.name, name, as_array(ids), graph.num_edge_ids(), "edges")
            for name, ids in by_split_name(self.name, self.edge_splits).items()
        }
        self._set(graph=graph, x=x, edge_attr=edge_attr, edge_splits=edge_splits)
        self._set(
            edge_y=None if self.edge_y is None else as_array(self.edge_y),
            negatives={split: as_array(pairs) for split, pairs in by_split_name(self.name, self.negatives).items()},
        )

    def _check_edges(self) -> None:
        """Raise InputError if edge labels or negatives do not fit the graph."""
        if self.edge_y is not None:
            number = max(self.graph.num_edge_ids(), len(self.edge_y))
            check_labels(f"{self.name}, edges", self.edge_y, number, num_classes_of(self.edge_y), "edge")
        for split, pairs in self.negatives.items():
            number = len(self.edge_splits.get(split, ()))
            if pairs.ndim not in (2, 3) or len(pairs) != 2 or not is_integer(pairs.dtype) or (pairs.ndim == 3 and pairs.shape[1] != number):
                raise InputError(
                    f"{self.name}: negatives of {split} are {pairs.dtype} of shape {pairs.shape}: they must be integer pairs (2, M), or "
                    f"(2, {number}, K) for the {number:,} edges of this split; reshape or convert them"
                )
            if pairs.size and not 0 <= pairs.min() <= pairs.max() < self.graph.num_nodes:
                raise InputError(f"{self.name}: negatives of {split} leave the nodes 0 to {self.graph.num_nodes - 1}: drop these pairs")

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} ({len(ids):,})" for split, ids in self.splits.items()) or "none"
        return f"Dataset({self.name}, {self.graph}, num_features={self.num_features}, num_classes={self.num_classes}, splits: {splits})"

    @property
    def num_features(self) -> int:
        """Number of node features, F; 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_edge_features(self) -> int:
        """Number of edge features, D; 0 without edge features."""
        return 0 if self.edge_attr is None else int(self.edge_attr.shape[1])

    @property
    def num_seed_nodes(self) -> int:
        """Number of nodes, V."""
        return self.graph.num_nodes

    def contents(self) -> Contents:
        """Return features, edges and edge splits by node type, which is "", and by relation, which is ``ONLY``."""
        x = {} if self.x is None else {"": self.x}
        edge_attr = {} if self.edge_attr is None else {ONLY: self.edge_attr}
        return Contents({"": self.graph.num_nodes}, {ONLY: self.graph}, x, edge_attr, {ONLY: self.edge_splits})

    def in_memory(self) -> Dataset:
        """Return a copy with graph and features in this process's memory, in huge pages if the system grants them.

        Use it for sampling within one process (see ``Graph.in_memory``). The page cache may hold the features' file in addition.
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
        """Read a homogeneous ``torch_geometric.data.Data``: ``edge_index`` and, if set, ``x``, ``y`` and masks.

        Masks are ``train_mask``, ``val_mask`` (also ``valid_mask`` or ``validation_mask``) and ``test_mask``. Labels (V, 1) become (V,); floating labels
        that are whole numbers become integers. Edges keep their order as ids (``Graph.edge_ids``); ``edge_weight`` becomes ``Graph.weights``.
        ``edge_attr`` is kept. A warning and ``meta["not_carried"]`` name the attributes that are dropped.

        Args:
            data: the ``Data`` object.
            name: name of the data set in messages.
            time_attr: name of an edge or node attribute with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: ``edge_index`` is missing, or an attribute is not valid in a data set, such as a negative ``edge_weight``.
        """
        graph = Graph.from_pyg(data, time_attr=time_attr)
        left = {*data.keys()} - {"edge_index", "edge_weight", "edge_attr", "x", "y", "num_nodes", time_attr, *MASKS}
        meta = not_carried(name, "Dataset", left, "; time_attr names times")
        return cls(name=name, graph=graph, x=data.x, y=data.y, edge_attr=data.edge_attr, splits=masks_in(data), meta=meta)

    @classmethod
    def from_dgl(cls, graph: Any, *, name: str = "data", weight_attr: str | None = None, time_attr: str | None = None) -> Dataset:
        """Read a homogeneous ``dgl.DGLGraph`` with ``feat``, ``label`` and masks in ``ndata``, as in DGL's data sets; ``edata["feat"]`` becomes ``edge_attr``.

        Labels, masks and dropped fields are treated as in ``from_pyg``.

        Args:
            graph: the ``DGLGraph``.
            name: name of the data set in messages.
            weight_attr: name of the edge field with weights, for which DGL has no fixed name.
            time_attr: name of an edge field or node field with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: a named field is missing, or a field is not valid in a data set.
        """
        made, nodes, edges = Graph.from_dgl(graph, weight_attr=weight_attr, time_attr=time_attr), graph.ndata, getattr(graph, "edata", {})
        left = ({*nodes} - {"feat", "label", *MASKS} | {*edges} - {"feat"}) - {weight_attr, time_attr}
        meta = not_carried(name, "Dataset", left, "; weight_attr and time_attr name weights and times")
        options = {"x": nodes.get("feat"), "y": nodes.get("label"), "edge_attr": edges.get("feat"), "splits": masks_in(nodes)}
        return cls(name=name, graph=made, meta=meta, **options)

    @classmethod
    def from_networkx(cls, graph: Any, *, name: str = "data", label_attr: str | None = None) -> Dataset:
        """Read a networkx graph. Nodes are numbered in its order; an undirected edge becomes two edges, with the same attributes.

        Node attributes are ``x`` or ``feat``, ``y`` or ``label``, and masks as in ``from_pyg``. Edge attributes are ``weight``, ``time``, and
        ``edge_attr`` or ``feat``. Labels that are texts become classes, whose names are in ``meta["classes"]``. Nodes may lack a label. A warning and
        ``meta["not_carried"]`` name the attributes that are dropped.

        Args:
            graph: a graph, directed or undirected, also with parallel edges.
            name: name of the data set in messages.
            label_attr: name of the node attribute with labels, instead of ``y`` or ``label``.

        Raises:
            InputError: only some of the nodes or edges have an attribute, or it is not valid in a data set.
        """
        directed = graph if graph.is_directed() else graph.to_directed(as_view=True)
        number = {node: place for place, node in enumerate(directed)}
        edges = list(directed.edges(data=True))
        nodes = Attributes(name, "node", list(directed), [own for _, own in directed.nodes(data=True)])
        of_edges = Attributes(name, "edge", [ends[:2] for ends in edges], [own for *_, own in edges])
        ends = np.array([(number[src], number[dst]) for src, dst, _ in edges], np.int64).reshape(-1, 2).T
        made = Graph.from_edge_index(ends, len(number), weights=of_edges.take("weight"), times=of_edges.take("time"))
        y, classes = nodes.labels(*(("y", "label") if label_attr is None else (label_attr,)))
        splits = masks_in({mask: nodes.take(mask) for mask in MASKS})
        options: dict[str, Any] = {"x": nodes.take("x", "feat"), "y": y, "edge_attr": of_edges.take("edge_attr", "feat"), "splits": splits}
        meta = ({} if classes is None else {"classes": classes}) | not_carried(name, "Dataset", {*nodes.left(), *of_edges.left()})
        return cls(name=name, graph=made, meta=meta, **options)


def with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin with ``prefix``, keyed by the rest of the name."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _numbered(by_key: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (file name suffix, value) for each key. The suffix is ``_NUMBER``, or "" if there is only one type or relation."""
    yield from (("" if key in ("", ONLY) else f"_{number}", value) for number, (key, value) in enumerate(by_key.items()))


def _as_int64(by_split: Mapping[str, Array]) -> dict[str, Array]:
    return {split: ids.astype(np.int64, copy=False) for split, ids in by_split.items()}
