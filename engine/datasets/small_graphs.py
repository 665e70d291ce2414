"""Data sets of many small labelled graphs, stored as one block-diagonal graph and the node range of each small graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, as_labels
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.source import narrow_features
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.checks import check_labels, check_split, label_dtype, num_classes_of
from hoptrain.engine.features.splits import SPLITS, by_split_name
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter, create_new_folder, open_folder
from hoptrain.kernels.cpu.shuffle import permutation

FOLDS = 10
_GRAPHS_OF = "graphs_of_"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SmallGraphs:
    """G labelled graphs with V nodes in total; read-only, validated by the constructor.

    Attributes:
        name: name of the data set in messages.
        nodes: data set of the block-diagonal graph, with all nodes, edges and features. No edge connects two of the small graphs.
        ptr: (G+1,) int64: graph g has the nodes ``ptr[g]`` to ``ptr[g+1] - 1``.
        y: (G,) int64 classes in [0, num_classes); or (G, num_classes) uint8 of 0 and 1 for several labels per graph (int8 with -1 for unknown ones); or (G,)
            or (G, num_classes) float32 regression targets.
        splits: graph indices, (M,) int64, by split name: ``train``, ``val``, ``test``.
        num_classes: number of classes, labels or targets; 0 to count them from ``y``.
        validate: constructor argument only: False skips the checks, for arrays that are known to be valid.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset, SmallGraphs
        >>> nodes = Dataset(edge_index=[[0, 1, 2, 3], [1, 0, 3, 4]], x=np.ones((5, 1)))  # the nodes of both graphs
        >>> graphs = SmallGraphs(nodes=nodes, ptr=np.array([0, 2, 5]), y=np.array([0, 1]), splits={"train": np.array([0, 1])})
        >>> len(graphs.y), graphs.num_classes
        (2, 2)
    """

    name: str = "graphs"
    nodes: Dataset
    ptr: Array
    y: Array
    splits: Mapping[str, Array] = field(default_factory=dict)
    num_classes: int = 0
    validate: InitVar[bool] = True

    def __post_init__(self, validate: bool) -> None:
        y = as_labels(self.name, as_array(self.y), self.num_classes)
        object.__setattr__(self, "ptr", as_array(self.ptr))
        object.__setattr__(self, "splits", {split: as_array(ids) for split, ids in by_split_name(self.name, self.splits).items()})
        object.__setattr__(self, "num_classes", self.num_classes or num_classes_of(y))
        if validate:
            self._check(y)
        object.__setattr__(self, "y", y.astype(label_dtype(y), copy=False))
        object.__setattr__(self, "ptr", self.ptr.astype(np.int64, copy=False))
        object.__setattr__(self, "splits", {split: ids.astype(np.int64, copy=False) for split, ids in self.splits.items()})

    def _check(self, y: Array) -> None:
        name, number = self.name, len(y)
        check_labels(name, y, number, self.num_classes, "graph")
        for split, ids in self.splits.items():
            check_split(name, split, ids, number, y, "graph")
        _check_shares(name, self.ptr, number, self.nodes)
        if self.nodes.x is None:
            raise InputError(f"{name} has no features of nodes: small graphs need them; add x or node_label")

    def save(self, path: str | Path) -> None:
        """Write the graphs into a new folder ``path``, which must not exist yet. ``open`` and ``load_small_graphs`` read it."""
        with create_new_folder(Path(path), Dataset.kind) as writer:
            self.write_to(writer)

    def write_to(self, writer: FolderWriter) -> None:
        """Write the arrays and header entries of all graphs with ``writer``."""
        self.nodes.write_to(writer)
        own = {"graph_ptr": self.ptr, "graph_y": self.y} | {f"{_GRAPHS_OF}{split}": ids for split, ids in self.splits.items()}
        for name, array in own.items():
            writer.add(name, array)
        writer.meta["num_graph_classes"] = self.num_classes

    @classmethod
    def open(cls, path: str | Path) -> SmallGraphs:
        """Open a folder that ``save`` wrote, memory-mapped.

        Raises:
            InputError: the folder is not one that ``save`` wrote, or a file in it is truncated or altered.
        """
        nodes = Dataset.open(path)
        arrays, meta = open_folder(Path(path), Dataset.kind, verify=False)
        if "graph_ptr" not in arrays or "num_graph_classes" not in meta:
            raise InputError(f"{path} holds one graph, {nodes.name}: a folder of SmallGraphs.save is needed; name one, or use task: nodes")
        return cls(
            name=nodes.name,
            nodes=nodes,
            ptr=arrays["graph_ptr"],
            y=arrays["graph_y"],
            splits={name.removeprefix(_GRAPHS_OF): ids for name, ids in arrays.items() if name.startswith(_GRAPHS_OF)},
            num_classes=meta["num_graph_classes"],
        )

    @classmethod
    def from_pyg(
        cls, dataset: Iterable[Any], *, splits: Mapping[str, Any] | None = None, fold: int = 0, name: str = "graphs"
    ) -> SmallGraphs:
        """Read a PyG ``Dataset`` or a list of ``Data``, each with ``x``, ``edge_index`` and ``y``. ``edge_attr`` is read if all graphs have it.

        Labels are treated as in ``Dataset.from_pyg``: if all floats are integers (or NaN, for no label), they become classes; else they are targets.

        Args:
            dataset: PyG ``Dataset`` or list of the graphs.
            splits: graph indices by split name; by default those of ``dataset.get_idx_split()`` (as in OGB) if it exists, else splits by ten folds.
            fold: index of the fold for testing, from 0 to 9, as in ``load_small_graphs``.
            name: name of the data set in messages.

        Raises:
            InputError: a graph has no features, label or nodes, only some graphs have edge features, or the graphs are invalid.
        """
        graphs = list(dataset)
        _check_parts(name, graphs)
        sizes = np.array([int(data.num_nodes) for data in graphs])
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        edges = np.concatenate([as_array(data.edge_index) + begin for data, begin in zip(graphs, ptr[:-1], strict=True)], axis=1)
        x, edge_attr = (
            None if rows[0] is None else narrow_features(np.concatenate([_columns(own) for own in rows]))
            for rows in ([data.x for data in graphs], [data.edge_attr for data in graphs])
        )
        y = np.concatenate([as_array(data.y).reshape(1, -1) for data in graphs])
        nodes = Dataset(name=name, graph=Graph.from_edges(edges[0], edges[1], int(ptr[-1])), x=x, edge_attr=edge_attr)
        if splits is None and (given := getattr(dataset, "get_idx_split", None)) is not None:
            splits = given()
        shared = folds_of(name, None, len(y), fold) if splits is None else {split: as_array(ids) for split, ids in splits.items()}
        return cls(name=name, nodes=nodes, ptr=ptr, y=y, splits=shared)

    def join(self, items: Array) -> dict[str, Array]:
        """Return the arrays of a ``GraphBatch`` (``hoptrain.trainers.tasks.items.graphs``): the graphs ``items`` as one graph, and their labels ``y``."""
        graph = self.nodes.graph
        sizes = self.ptr[items + 1] - self.ptr[items]
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        nodes = _ranges(self.ptr[items], sizes)
        degrees = graph.indptr[nodes + 1].astype(np.int64) - graph.indptr[nodes]
        begins, ends = graph.indptr[self.ptr[items]].astype(np.int64), graph.indptr[self.ptr[items + 1]].astype(np.int64)
        edges = _ranges(begins, ends - begins)
        arrays = {
            "x": take_rows(self.nodes.x, nodes).astype(np.float32),  # type: ignore[arg-type]
            "indptr": np.concatenate([[0], np.cumsum(degrees)]),
            "indices": take_rows(graph.indices, edges) + np.repeat(ptr[:-1] - self.ptr[items], ends - begins),
            "ptr": ptr,
            "y": self.y[items],
        }
        if self.nodes.edge_attr is not None:
            ids = edges if graph.edge_ids is None else take_rows(graph.edge_ids, edges)
            arrays["edge_attr"] = take_rows(self.nodes.edge_attr, ids).astype(np.float32)
        return arrays


def check_fold(fold: int) -> None:
    """Raise InputError if ``fold`` is not in [0, 9].

    Raises:
        InputError: ``fold`` is not in [0, 9].
    """
    if not 0 <= fold < FOLDS:
        raise InputError(f"fold is {fold}: it must be one of {FOLDS} folds; give a number from 0 to {FOLDS - 1}")


def folds_of(name: str, folds: Array | None, number: int, fold: int) -> dict[str, Array]:
    """Return splits of ``number`` graphs by ten folds: ``fold`` is for testing, the next one for validation, all others are for training.

    Args:
        name: name of the data set in messages.
        folds: fold (number,) of each graph; None to assign graphs to folds by hoptrain's permutation with seed 0.
        number: number of graphs.
        fold: the test fold, 0 to 9.

    Raises:
        InputError: the fold does not exist, or a split has no graphs.
    """
    check_fold(fold)
    if folds is None:
        folds = np.empty(number, np.int64)
        folds[permutation(number, 0, 0)] = np.arange(number) % FOLDS
    kinds = {"test": folds == fold, "val": folds == (fold + 1) % FOLDS}
    splits = {split: np.flatnonzero(mask) for split, mask in kinds.items()} | {"train": np.flatnonzero(~(kinds["test"] | kinds["val"]))}
    for split in SPLITS:
        if not len(splits[split]):
            raise InputError(
                f"{name}: with fold {fold} no graph is for {split}: fold10 has the folds {', '.join(map(str, np.unique(folds)))} of 0 to {FOLDS - 1}; "
                "choose another fold, or correct fold10"
            )
    return splits


def _check_shares(name: str, ptr: Array, number: int, nodes: Dataset) -> None:
    """Raise InputError if ``ptr`` does not divide all nodes among the graphs, or an edge connects two graphs."""
    num_nodes = nodes.graph.num_nodes
    if not number or ptr.shape != (number + 1,) or ptr[0] != 0 or ptr[-1] != num_nodes or (np.diff(ptr) < 0).any():
        raise InputError(
            f"{name}: graph_ptr of shape {ptr.shape} does not divide {num_nodes:,} nodes among {number:,} graphs; give offsets from 0 to {num_nodes}"
        )
    if (empty := np.flatnonzero(np.diff(ptr) == 0)).size:
        raise InputError(f"{name}: graph {empty[0]} has no nodes: each graph needs at least one node; drop it and its label")
    counts = np.diff(nodes.graph.indptr)
    own = np.repeat(np.searchsorted(ptr, np.arange(num_nodes), side="right"), counts)
    if (np.searchsorted(ptr, nodes.graph.indices, side="right") != own).any():
        raise InputError(f"{name}: an edge connects two of the small graphs: edges must stay within one; correct graph_ptr or the edges")


def _check_parts(name: str, graphs: list[Any]) -> None:
    """Raise InputError if PyG graphs lack an attribute, or differ in their number of features."""
    if not graphs:
        raise InputError(f"{name} has no graphs: at least one is needed; give some")
    for what, names in (("no features of nodes", "x"), ("no edge_index", "edge_index"), ("no label", "y")):
        lacking = next((number for number, data in enumerate(graphs) if getattr(data, names, None) is None), None)
        if lacking is not None:
            raise InputError(f"{name}: graph {lacking} has {what}: every graph needs {names}; add it, for example with a transform")
    with_attr = [data.edge_attr is not None for data in graphs]
    if any(with_attr) and not all(with_attr):
        raise InputError(
            f"{name}: graph {with_attr.index(False)} has no edge_attr, but others have: all or none must have it; add or remove it"
        )
    for column in ("x", "edge_attr", "y"):
        widths = [1 if rows is None else _columns(rows).shape[1] for rows in (getattr(data, column) for data in graphs)]
        if column == "y":
            widths = [int(as_array(data.y).size) for data in graphs]
        if len(set(widths)) > 1:
            number = next(number for number, width in enumerate(widths) if width != widths[0])
            raise InputError(
                f"{name}: graph {number} has {widths[number]} columns of {column}, graph 0 has {widths[0]}: they must be equal; add or drop columns"
            )


def _columns(rows: Any) -> Array:
    """Return features (N, D) unchanged, and features (N,) as (N, 1)."""
    array = as_array(rows)
    return array[:, None] if array.ndim == 1 else array


def _ranges(begins: Array, sizes: Array) -> Array:
    """Return the integers of all ranges [begins[i], begins[i] + sizes[i]), concatenated, int64."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begins - before, sizes) + np.arange(sizes.sum())
