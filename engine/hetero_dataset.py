"""A data set on a typed graph: features by type, labels and splits of the vertices of one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.dataset import SPLITS, as_ids, as_labels, check_features, check_labels, check_split, num_classes_of, split_of
from hoptrain.engine.errors import InputError
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.store import FolderWriter, complete_header, create_new_folder, open_folder

KIND = "hetero-dataset"
_GRAPH = "graph"
"""The folder of the graph, in that of its data set."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroDataset:
    """Graph, features, labels and splits; read-only, validated when it is made; ``HeteroDataset.open`` trusts the checksums instead.

    Attributes:
        name: for messages and logs.
        graph: the typed graph.
        seed_type: the type of the vertices that are trained on; V of them.
        x: (V_t, F_t) features as stored, for the types t that have some; all arrays may be NumPy's or torch's.
        y: (V,) integer classes, -1 for no label; or (V, C) of 0 and 1 for several labels; or None.
        splits: vertex ids of ``seed_type``, (N,), or masks (V,), by name: ``train``, ``val``, ``test`` or any other identifier.
        num_classes: number of classes, 0 without labels; where 0 is given, what the labels have.
        meta: source, licence, where the split comes from: anything JSON can hold.
        path: the folder it was opened from, or None.
        validate: an argument only: False for arrays that are right by construction.
    """

    graph: HeteroGraph
    seed_type: str
    x: Mapping[str, Array] = field(default_factory=dict)
    y: Array | None = None
    splits: Mapping[str, Array] = field(default_factory=dict)
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
        check_labels(self.name, self.y, self.num_seed_nodes, self.num_classes)
        for split, ids in self.splits.items():
            check_split(self.name, split, ids, self.num_seed_nodes, self.y)
        object.__setattr__(self, "splits", {split: ids.astype(np.int64, copy=False) for split, ids in self.splits.items()})

    def _take_in(self) -> None:
        """Tensors as arrays, masks as ids, labels as int64 where they are classes."""
        number = self.graph.num_nodes.get(self.seed_type, 0)
        object.__setattr__(self, "x", {key: as_array(rows) for key, rows in self.x.items()})
        object.__setattr__(self, "splits", {name: as_ids(self.name, name, as_array(ids), number) for name, ids in self.splits.items()})
        if self.y is not None:
            y = as_labels(as_array(self.y))
            object.__setattr__(self, "y", y.astype(np.int64, copy=False) if y.ndim == 1 and y.dtype.kind in "iu" else y)
            if not self.num_classes and y.ndim in (1, 2) and y.dtype.kind in "iub":
                object.__setattr__(self, "num_classes", num_classes_of(y))

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

    def stores(self) -> dict[str, Array]:
        """Rows by vertex, by the name that they have for a batch: ``x.TYPE`` and ``y``."""
        return {f"x.{key}": rows for key, rows in self.x.items()} | ({} if self.y is None else {"y": self.y})

    def save(self, path: str | Path) -> None:
        """Write the data set as a folder; ``path`` must not exist yet. Opened again with ``HeteroDataset.open``."""
        with create_new_folder(Path(path), KIND) as writer:
            self.write_to(writer)

    def write_to(self, writer: FolderWriter) -> None:
        """Write the graph, as a folder in the new one, the arrays, and what the header states."""
        self.graph.save(writer.folder / _GRAPH)
        for name, array in self._arrays().items():
            writer.add(name, array)
        facts = {"name": self.name, "seed_type": self.seed_type, "num_classes": self.num_classes, "info": dict(self.meta)}
        writer.meta.update(facts, features=list(self.x))

    def _arrays(self) -> dict[str, Array]:
        """By the name of its file; features by the number of their type among ``features``, since a type may be called anything."""
        x = {f"x_{number}": rows for number, rows in enumerate(self.x.values())}
        return x | ({} if self.y is None else {"y": self.y}) | {f"split_{name}": ids for name, ids in self.splits.items()}

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
        with complete_header(path):
            return cls(
                name=meta["name"],
                graph=HeteroGraph.open(path / _GRAPH, verify=verify),
                seed_type=meta["seed_type"],
                x={name: arrays[f"x_{number}"] for number, name in enumerate(meta["features"])},
                y=arrays.get("y"),
                splits={name.removeprefix("split_"): ids for name, ids in arrays.items() if name.startswith("split_")},
                num_classes=meta["num_classes"],
                meta=meta["info"],
                path=path,
                validate=False,
            )

    @classmethod
    def from_pyg(cls, data: Any, seed_type: str | None = None, *, name: str = "data") -> HeteroDataset:
        """A ``torch_geometric.data.HeteroData``: its edges, and of each type ``x`` where it has some.

        Labels ``y`` and ``train_mask``, ``val_mask``, ``test_mask`` are those of ``seed_type``, by default the only type with a ``y``.

        Args:
            data: the graph.
            seed_type: the type of the vertices that are trained on.
            name: for messages.

        Raises:
            InputError: no type has labels, or several have, and none was named; something that a data set cannot hold.
        """
        labelled = [kind for kind in data.node_types if getattr(data[kind], "y", None) is not None]
        if seed_type is None and len(labelled) != 1:
            raise InputError(
                f"{name}: labels of {', '.join(labelled) or 'no type'}: vertices of one type are trained on; name it by seed_type"
            )
        seed_type = seed_type or labelled[0]
        seeds = data[seed_type] if seed_type in data.node_types else None  # else it would be added there
        masks = {split: getattr(seeds, f"{split}_mask", None) for split in SPLITS}
        return cls(
            name=name,
            graph=HeteroGraph.from_pyg(data),
            seed_type=seed_type,
            x={kind: x for kind in data.node_types if (x := getattr(data[kind], "x", None)) is not None},
            y=getattr(seeds, "y", None),
            splits={split: as_array(mask).astype(bool) for split, mask in masks.items() if mask is not None},
        )
