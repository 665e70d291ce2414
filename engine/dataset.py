"""A data set on one graph: features, labels and splits of vertices and of edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_labels, is_integer
from hoptrain.engine.errors import InputError, not_carried
from hoptrain.engine.features.checks import check_edge_features, check_features, taken_in
from hoptrain.engine.features.quantized import Rows, files_of, in_memory, narrowed, rows_in
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter, checking, complete_header, create_new_folder, open_folder

KIND = "dataset"
SPLITS = ("train", "val", "test")
_MASKS = [f"{split}_mask" for split in SPLITS]
_BY_SPLIT = {"split": "splits", "edges_of": "edge_splits", "negatives_of": "negatives"}
"""What a data set has by split, by how the names of its files begin."""
_SEVERAL = {"vertex": "vertices", "edge": "edges", "graph": "graphs"}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Dataset:
    """Graph, features, labels and splits of V vertices and of their edges; read-only.

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
        splits: vertex ids, (N,) int64, by name: ``train``, ``val``, ``test`` or any other identifier; given as ids or as masks (V,) of bool.
        num_classes: number of classes (or targets), 0 without labels; where 0 is given, what the labels have.
        edge_y: (R,) labels of edges by id, as those of vertices, but that floating ones are always targets; or None.
        edge_splits: edge ids, (N,) int64, by name: edges to learn from and to be judged by, where a task is about edges or links.
        negatives: pairs of vertices that are no links, to judge links by, by the name of a split with N edges: (2, M) int64 for all of them, or
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

    name: str = "data"
    graph: Graph = None  # type: ignore[assignment]  # never None once it is made
    x: Rows | None = None
    edge_attr: Rows | None = None
    y: Array | None = None
    splits: Mapping[str, Array] = field(default_factory=dict)
    num_classes: int = 0
    edge_y: Array | None = None
    edge_splits: Mapping[str, Array] = field(default_factory=dict)
    negatives: Mapping[str, Array] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    validate: InitVar[bool] = True
    edge_index: InitVar[Any] = None

    def __post_init__(self, validate: bool, edge_index: Any) -> None:
        if validate:
            self._take_in(edge_index)
            check_features(self.name, self.x, self.graph.num_nodes)
            check_edge_features(self.name, self.edge_attr, num_edge_ids(self.graph))
            check = check_targets if self.y is not None and self.y.dtype.kind == "f" else check_labels
            check(self.name, self.y, self.graph.num_nodes, self.num_classes)
            for split, ids in self.splits.items():
                check_split(self.name, split, ids, self.graph.num_nodes, self.y)
            self._check_edges()
        for name in ("y", "edge_y"):
            labels = getattr(self, name)
            if labels is not None:
                object.__setattr__(self, name, labels.astype(label_dtype(labels), copy=False))
        for name in ("splits", "edge_splits", "negatives"):
            by_split = {split: ids.astype(np.int64, copy=False) for split, ids in getattr(self, name).items()}
            object.__setattr__(self, name, by_split)

    def _take_in(self, edge_index: Any) -> None:
        """Tensors as arrays, masks as ids, edges as a graph, classes counted."""
        if (self.graph is None) == (edge_index is None):
            raise InputError(f"{self.name} has {'no edges' if edge_index is None else 'a graph and an edge_index'}: give one of the two")
        x, y, edge_attr = (taken_in(rows) for rows in (self.x, self.y, self.edge_attr))
        edge_attr = edge_attr[:, None] if edge_attr is not None and edge_attr.ndim == 1 else edge_attr
        rows = next((len(array) for array in (x, y) if array is not None and array.ndim), None)
        graph = self.graph if edge_index is None else Graph.from_edge_index(edge_index, rows)
        if not isinstance(graph, Graph):
            raise InputError(
                f"{self.name}: graph is a {type(graph).__name__}: give a Graph, or the whole as Dataset.from_pyg or from_dgl take it"
            )
        splits = {split: as_ids(self.name, split, as_array(ids), graph.num_nodes) for split, ids in self.splits.items()}
        y = None if y is None else as_labels(y)
        num_classes = self.num_classes or (0 if y is None or y.ndim not in (1, 2) or y.dtype.kind not in "iubf" else num_classes_of(y))
        edge_y = None if self.edge_y is None else as_array(self.edge_y)
        edge_splits = {name: as_ids(self.name, name, as_array(ids), num_edge_ids(graph), "edges") for name, ids in self.edge_splits.items()}
        for name, value in (
            ("x", x),
            ("y", y),
            ("edge_attr", edge_attr),
            ("graph", graph),
            ("splits", splits),
            ("num_classes", num_classes),
            ("edge_y", edge_y),
            ("edge_splits", edge_splits),
            ("negatives", {split: as_array(pairs) for split, pairs in self.negatives.items()}),
        ):
            object.__setattr__(self, name, value)

    def _check_edges(self) -> None:
        """Refuse labels and splits of edges, and pairs that are none, that the graph cannot have."""
        num_ids = num_edge_ids(self.graph)
        if self.edge_y is not None:
            own = check_targets if self.edge_y.dtype.kind == "f" else check_labels
            own(f"{self.name}, edges", self.edge_y, max(num_ids, len(self.edge_y)), num_classes_of(self.edge_y), "edge")
        for split, ids in self.edge_splits.items():
            check_split(self.name, split, ids, num_ids, self.edge_y, "edge")
        for split, pairs in self.negatives.items():
            number = len(self.edge_splits.get(split, ()))
            if pairs.ndim not in (2, 3) or len(pairs) != 2 or not is_integer(pairs.dtype) or (pairs.ndim == 3 and pairs.shape[1] != number):
                raise InputError(
                    f"{self.name}: negatives of {split} are {pairs.dtype} of shape {pairs.shape}: they are pairs (2, M), or (2, {number}, K) "
                    f"for the {number:,} edges of this split; correct them"
                )
            if pairs.size and not 0 <= pairs.min() <= pairs.max() < self.graph.num_nodes:
                raise InputError(f"{self.name}: negatives of {split} leave the vertices 0 to {self.graph.num_nodes - 1}: correct them")

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
    def is_multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.y is not None and self.y.ndim == 2 and not self.is_regression

    @property
    def is_regression(self) -> bool:
        """Whether labels are targets of a regression."""
        return self.y is not None and self.y.dtype.kind == "f"

    def split(self, name: str) -> Array:
        """Vertex ids of a split, (N,) int64.

        Raises:
            InputError: there is no such split, or it is empty.
        """
        return split_of(self.name, self.splits, name)

    @property
    def num_seed_nodes(self) -> int:
        """V: vertices that may be seeds."""
        return self.graph.num_nodes

    def stores(self) -> dict[str, Rows]:
        """Rows by vertex, ``x`` and ``y``, and by edge id, ``edge_attr``: those that there are, by the name that they have for a batch."""
        return {name: rows for name, rows in (("x", self.x), ("y", self.y), ("edge_attr", self.edge_attr)) if rows is not None}

    def in_memory(self) -> Dataset:
        """The same data set with graph and features in memory of this process, in huge pages where the system grants them.

        See ``Graph.in_memory``: for sampling within one process. Features lie there once more, beside what the system caches of their file.
        """
        return replace(self, graph=self.graph.in_memory(), x=in_memory(self.x), edge_attr=in_memory(self.edge_attr), validate=False)

    def save(self, path: str | Path, features: str | None = None) -> None:
        """Write the data set as a folder; ``path`` must not exist yet. Opened again with ``Dataset.open``.

        Args:
            path: the folder.
            features: what those of vertices and edges are written as: int8, int4, float16 or bfloat16; by default as they are.

        Raises:
            InputError: a folder that exists or cannot be written; as ``hoptrain.engine.features.quantized.narrowed``.
        """
        with create_new_folder(Path(path), KIND) as writer:
            self.write_to(writer, features)

    def write_to(self, writer: FolderWriter, features: str | None = None) -> None:
        """Write the arrays and what the header states into a new folder; ``features`` as of ``save``."""
        given = self
        if features is not None:
            tables = {name: rows for name, rows in self.stores().items() if name != "y"}
            tables = narrowed(self.name, tables, features, writer.create)
            given = replace(self, x=tables.get("x"), edge_attr=tables.get("edge_attr"), validate=False)
        for name, array in given.arrays().items():
            writer.add(name, array)
        writer.meta.update(dataset_meta(self))

    def arrays(self) -> dict[str, Array]:
        """Every array by the name of its file."""
        by_split = {f"{kind}_{split}": ids for kind, field in _BY_SPLIT.items() for split, ids in getattr(self, field).items()}
        rows = {file: array for name, own in self.stores().items() for file, array in files_of(name, own).items()}
        return self.graph.arrays() | rows | ({} if self.edge_y is None else {"edge_y": self.edge_y}) | by_split

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "data", time_attr: str | None = None) -> Dataset:
        """A homogeneous ``torch_geometric.data.Data``: ``edge_index``, and ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask`` where it has them.

        Labels (V, 1) are taken as (V,), floating ones as the integers that they are. Edges keep their numbers (``Graph.edge_ids``) and their
        ``edge_weight``, which becomes ``Graph.weights``, and ``edge_attr``. ``meta["not_carried"]`` and a warning name what is left out.

        Args:
            data: the graph.
            name: for messages.
            time_attr: what times of edges or of nodes are called, as in ``Graph.from_pyg``.

        Raises:
            InputError: it has no edge_index, or something that a data set cannot hold, as an edge_weight below 0.
        """
        graph, masks = Graph.from_pyg(data, time_attr=time_attr), {split: getattr(data, f"{split}_mask", None) for split in SPLITS}
        left = {*data.keys()} - {"edge_index", "edge_weight", "edge_attr", "x", "y", "num_nodes", time_attr, *_MASKS}
        return cls._from_parts(name, graph, data.x, data.y, data.edge_attr, masks, left, "; time_attr names times")

    @classmethod
    def from_dgl(cls, graph: Any, *, name: str = "data") -> Dataset:
        """A homogeneous ``dgl.DGLGraph`` with ``feat``, ``label`` and masks of vertices in ``ndata``, as DGL's data sets have them; else as ``from_pyg``.

        Of ``edata`` it takes ``feat`` as ``edge_attr``. Weights have no name of their own there: ``Graph.from_edges`` takes them beside ``graph.edges()``.
        """
        made, held, of_edges = Graph.from_dgl(graph), graph.ndata, getattr(graph, "edata", {})
        masks = {split: held.get(f"{split}_mask") for split in SPLITS}
        left = {*held} - {"feat", "label", *_MASKS} | {*of_edges} - {"feat"}
        return cls._from_parts(name, made, held.get("feat"), held.get("label"), of_edges.get("feat"), masks, left)

    @classmethod
    def _from_parts(cls, name: str, graph: Graph, x: Any, y: Any, edge_attr: Any, masks: Any, left: set[str], remedy: str = "") -> Dataset:
        splits = {split: as_array(mask).astype(bool) for split, mask in masks.items() if mask is not None}
        y = None if y is None else as_labels(as_array(y))
        meta = not_carried(name, "Dataset", left, remedy)
        return cls(name=name, graph=graph, x=x, y=y, edge_attr=edge_attr, splits=splits, meta=meta)

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None) -> Dataset:
        """Open a folder memory-mapped: nothing is copied, and processes share the pages.

        Args:
            path: a folder written by ``save``.
            verify: compare checksums; by default for folders up to 256 MiB.

        Raises:
            InputError: not such a folder, or one that is truncated or altered.
        """
        path = Path(path)
        arrays, meta = open_folder(path, KIND, verify=verify)
        with complete_header(path), checking(path, verify) as is_new:
            return cls(
                name=meta["name"],
                graph=Graph.from_arrays(arrays, meta["is_sorted"], is_new),
                x=rows_in(arrays, "x"),
                edge_attr=rows_in(arrays, "edge_attr"),
                y=arrays.get("y"),
                num_classes=meta["num_classes"],
                edge_y=arrays.get("edge_y"),
                **{
                    field: {name.removeprefix(f"{kind}_"): ids for name, ids in arrays.items() if name.startswith(f"{kind}_")}
                    for kind, field in _BY_SPLIT.items()
                },
                meta=meta["info"],
                path=path,
                validate=is_new,
            )


def split_of(name: str, splits: Mapping[str, Array], split: str) -> Array:
    """The vertex ids of one of a data set's splits, (N,).

    Raises:
        InputError: there is no such split, or it is empty.
    """
    if split not in splits:
        known = ", ".join(splits) or "none at all"
        raise InputError(f"{name} has no split {split!r}: it has {known}; choose one of them or give vertex ids")
    if len(splits[split]) == 0:
        raise InputError(f"the {split} split of {name} is empty: it needs at least one vertex; fill it or choose another split")
    return splits[split]


def num_classes_of(y: Array) -> int:
    """C: columns of (V, C) labels, or one more than the largest class of (V,); 1 for targets (V,)."""
    return int(y.shape[1]) if y.ndim == 2 else 1 if y.dtype.kind == "f" else max(int(y.max()) + 1, 0) if len(y) else 0


def num_edge_ids(graph: Any) -> int:
    """One more than the largest id of an edge of a ``Graph``, or of the ``RelationColumns`` of a typed one."""
    return graph.num_edges if graph.edge_ids is None else int(graph.edge_ids.max(initial=-1)) + 1


def label_dtype(y: Array) -> Any:
    """What labels are kept as: targets float32, classes int64, several labels uint8, or int8 where some are unknown."""
    return np.float32 if y.dtype.kind == "f" else np.int64 if y.ndim == 1 else np.uint8 if y.min(initial=0) >= 0 else np.int8


def dataset_meta(data: Dataset) -> dict[str, Any]:
    """What the header of a data set's folder states beside the arrays."""
    return {
        "name": data.name,
        "num_nodes": data.graph.num_nodes,
        "num_edges": data.graph.num_edges,
        "num_classes": data.num_classes,
        "is_sorted": data.graph.is_sorted,
        "info": dict(data.meta),
    }


def as_ids(name: str, split: str, ids: Array, num_nodes: int, what: str = "vertices") -> Array:
    """The ids of a split of vertices, or ``what``, that is given as ids or as a mask (V,) of bool."""
    if ids.dtype != bool:
        return ids
    if ids.shape != (num_nodes,):
        raise InputError(
            f"{name}: the mask of split {split} has shape {ids.shape}: it is one bool for each of the {num_nodes:,} {what}; give one, or ids"
        )
    return np.flatnonzero(ids)


def check_labels(name: str, y: Array | None, number: int, num_classes: int, what: str = "vertex") -> None:
    """Refuse labels that are not one, or a row, for each vertex (or edge) of ``number``, within their range."""
    if y is None:
        return
    if y.ndim not in (1, 2) or len(y) != number or not is_integer(y.dtype):
        raise InputError(
            f"{name}: y is {y.dtype} of shape {y.shape}: labels are integers, one (or one row) for each of the {number:,} "
            f"{_SEVERAL[what]}, or floating targets"
        )
    _check_columns(name, y, num_classes)
    low, high = -1, num_classes if y.ndim == 1 else 2
    bad = np.argwhere((y < low) | (y >= high))
    if len(bad):
        place = ", ".join(str(i) for i in bad[0])
        raise InputError(
            f"{name}: y[{place}] is {y[tuple(bad[0])]}: labels are in [{low}, {high}); correct it or num_classes ({num_classes})"
        )


def check_targets(name: str, y: Any, number: int, num_classes: int, what: str = "vertex") -> None:
    """Refuse targets that are not one, or a row, for each vertex (or edge) of ``number``, finite or NaN for none."""
    if y.ndim not in (1, 2) or len(y) != number:
        raise InputError(
            f"{name}: y has shape {y.shape}: targets are one, or one row, for each of the {number:,} {_SEVERAL[what]}; reshape it"
        )
    _check_columns(name, y, num_classes)
    if np.isinf(y).any():
        raise InputError(f"{name}: y has infinities: targets are finite, or NaN for none; replace them")


def _check_columns(name: str, y: Array, num_classes: int) -> None:
    if y.ndim == 2 and y.shape[1] != num_classes:
        raise InputError(f"{name}: y has {y.shape[1]} columns, but num_classes is {num_classes}: state the number of columns")


def check_split(name: str, split: str, ids: Array, number: int, y: Array | None, what: str = "vertex") -> None:
    """Refuse a split that is no list of distinct labelled vertices (or edges) of ``number``."""
    if not split.isidentifier():
        raise InputError(f"{name}: a split is called {split!r}: its name is part of a file's, so only letters, digits and _; rename it")
    if ids.ndim != 1 or not is_integer(ids.dtype):
        raise InputError(
            f"{name}: split {split} is {ids.dtype} of shape {ids.shape}: a split is a list of {what} ids; use np.flatnonzero(mask)"
        )
    bad = ids[(ids < 0) | (ids >= number)]
    if len(bad):
        raise InputError(f"{name}: split {split} names {what} {bad[0]}: {_SEVERAL[what]} are 0 to {number - 1}; drop it from the split")
    if len(np.unique(ids)) != len(ids):
        raise InputError(
            f"{name}: split {split} names {'an' if what == 'edge' else 'a'} {what} twice: every {what} counts once; use np.unique(ids)"
        )
    if y is None or (y.ndim == 2 and y.dtype.kind != "f"):
        return
    is_none = np.isnan(y[ids]).reshape(len(ids), -1).any(1) if y.dtype.kind == "f" else y[ids] < 0
    if is_none.any():
        item = ids[np.flatnonzero(is_none)[0]]
        raise InputError(
            f"{name}: {what} {item} of split {split} has no label ({y[item]}): a split holds labelled {_SEVERAL[what]}; drop it from the split"
        )
