"""A data set on a typed graph: features by type, labels and splits of the vertices of one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.dataset import as_ids, as_labels, check_features, check_labels, check_split, num_classes_of, split_of
from hoptrain.engine.errors import InputError
from hoptrain.engine.hetero_graph import HeteroGraph


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroDataset:
    """Graph, features, labels and splits; read-only, validated when it is made.

    Attributes:
        name: for messages and logs.
        graph: the typed graph.
        seed_type: the type of the vertices that are trained on; V of them.
        x: (V_t, F_t) features as stored, for the types t that have some; all arrays may be NumPy's or torch's.
        y: (V,) integer classes, -1 for no label; or (V, C) of 0 and 1 for several labels; or None.
        splits: vertex ids of ``seed_type``, (N,), or masks (V,), by name: ``train``, ``val``, ``test`` or any other identifier.
    """

    graph: HeteroGraph
    seed_type: str
    x: Mapping[str, Array] = field(default_factory=dict)
    y: Array | None = None
    splits: Mapping[str, Array] = field(default_factory=dict)
    name: str = "data"

    def __post_init__(self) -> None:
        self._take_in()
        known = ", ".join(self.graph.num_nodes)
        for key in (self.seed_type, *self.x):
            if key not in self.graph.num_nodes:
                what = "seed_type" if key == self.seed_type else "x of a type"
                raise InputError(f"{self.name}: {what} is {key!r}: the graph has {known}; choose one of them")
        for key, rows in self.x.items():
            check_features(f"{self.name}, {key}", rows, self.graph.num_nodes[key])
        num_classes = 0 if self.y is None or self.y.dtype.kind not in "iub" else num_classes_of(self.y)
        check_labels(self.name, self.y, self.num_seed_nodes, num_classes)
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
