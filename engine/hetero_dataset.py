"""The data set with several node types: features by type, labels and splits of one node type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.dataset import BaseDataset, Contents, with_prefix
from hoptrain.engine.errors import InputError, an, explain_keywords, not_carried
from hoptrain.engine.features.checks import as_feature_array, as_ids, as_rows
from hoptrain.engine.features.quantized import Rows, rows_in
from hoptrain.engine.features.splits import MASKS, SPLITS, by_split_name, masks_in
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name


@explain_keywords
@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroDataset(BaseDataset):
    """A data set with a heterogeneous graph, features, labels and splits; read-only, validated by the constructor.

    Attributes:
        name: name of the data set in messages and logs.
        graph: the heterogeneous graph.
        seed_type: the type of the V nodes that have labels and splits.
        x: (V_t, F_t) features as stored, or ``QuantizedRows``, for the types t that have some. All arrays may be NumPy arrays or torch tensors.
        edge_attr: (R, D) edge features as stored, of any dtype that x may have, for the relations that have some. Row i belongs to the edge
            with id i (``RelationColumns.edge_ids``). An array (R,) counts as one feature.
        y: (V,) integer classes, -1 for no label; or (V, C) of 0 and 1 for several labels; or (V,) or (V, C) float32 regression targets, NaN
            for none; or None.
        splits: node ids (N,) of ``seed_type``, or masks (V,), by name: ``train``, ``val``, ``test`` or any other identifier.
        edge_splits: edge ids (N,) int64 by relation, then by split name: links to train on and to evaluate.
        num_classes: number of classes or targets; 0 to count them from the labels, and 0 without labels.
        meta: source, licence, origin of the split and the like: anything that JSON can represent.
        path: the folder that the data set was opened from, or None.
        validate: constructor argument only: False skips the checks, for arrays that are known to be valid.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import HeteroDataset, HeteroGraph
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])})
        >>> HeteroDataset(graph=graph, seed_type="item", x={"user": np.eye(2)}, y=np.array([0, 1, 1]), splits={"train": np.array([0, 2])})
        HeteroDataset(data, HeteroGraph(num_nodes={'user': 2, 'item': 3}, relations: user:buys:item (3)),
        x of user, seeds of item, splits: train (2))
    """

    kind: ClassVar[str] = "hetero-dataset"
    random_splits_by: ClassVar[str] = "--data.splits random on the command line"

    graph: HeteroGraph
    seed_type: str
    x: Mapping[str, Rows] = field(default_factory=dict)
    edge_attr: Mapping[Relation, Rows] = field(default_factory=dict)
    edge_splits: Mapping[Relation, Mapping[str, Array]] = field(default_factory=dict)

    def __post_init__(self, validate: bool) -> None:
        if validate:
            self._normalise_by_type()
            self._normalise_labels_and_splits()
            self._check()
            self._check_disjoint()
        self._narrow()

    def _normalise_by_type(self) -> None:
        """Convert features to arrays and edge splits to ids. Raise InputError for unknown types and relations."""
        for field_name in ("x", "edge_attr", "splits", "edge_splits"):
            if not isinstance(getattr(self, field_name), Mapping):
                raise InputError(
                    f"{self.name}: {field_name} is {an(type(getattr(self, field_name)).__name__)}: it must be a dictionary; key x by type, edge_attr by "
                    "relation, splits by name, edge_splits by relation and name"
                )
        self._check_known("seed_type is", [self.seed_type], self.graph.num_nodes)
        self._check_known("x of a type is", self.x, self.graph.num_nodes)
        self._check_known("edge_attr is of", self.edge_attr, self.graph.relations)
        self._check_known("edge_splits are of", self.edge_splits, self.graph.relations)
        self._set(
            x={key: as_feature_array(rows) for key, rows in self.x.items()},
            edge_attr={relation: as_rows(rows) for relation, rows in self.edge_attr.items()},
            edge_splits={relation: self._edge_ids(relation, splits) for relation, splits in self.edge_splits.items()},
        )

    def _check_known(self, what: str, keys: Iterable[Any], known: Mapping[Any, Any]) -> None:
        wrong = next((key for key in keys if key not in known), None)
        if wrong is not None:
            names = ", ".join(known) if known is self.graph.num_nodes else f"the relations {', '.join(map(relation_name, known))}"
            raise InputError(f"{self.name}: {what} {wrong!r}: the graph has {names}; choose one of them")

    def _edge_ids(self, relation: Relation, splits: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(splits, Mapping):
            raise InputError(
                f"{self._named(relation)}: edge_splits are {an(type(splits).__name__)}: give a dictionary of edge ids by split name"
            )
        number = self.graph.relations[relation].num_edge_ids()
        ids = {
            split: as_ids(self._named(relation), split, as_array(ids), number, "edges")
            for split, ids in by_split_name(self.name, splits).items()
        }
        return {split: own.astype(np.int64, copy=False) for split, own in ids.items()}

    def _check_disjoint(self) -> None:
        """Raise InputError if a node is in two splits of one family, such as train_5 and val_5."""
        families = {split: split.partition("_") for split in self.splits}
        for one, other in combinations(self.splits, 2):
            (kind, _, family), (other_kind, _, other_family) = families[one], families[other]
            if not {kind, other_kind} <= set(SPLITS) or family != other_family:
                continue
            both = np.intersect1d(self.splits[one], self.splits[other])
            if len(both):
                raise InputError(
                    f"{self.name}: node {both[0]} is in the splits {one} and {other}: they must not share nodes; drop it from one of them"
                )

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} ({len(ids):,})" for split, ids in self.splits.items()) or "none"
        return f"HeteroDataset({self.name}, {self.graph}, x of {', '.join(self.x) or 'none'}, seeds of {self.seed_type}, splits: {splits})"

    @property
    def num_seed_nodes(self) -> int:
        """Number of nodes of ``seed_type``, V."""
        return self.graph.num_nodes[self.seed_type]

    def contents(self) -> Contents:
        """Return features, edges and edge splits by node type and relation."""
        return Contents(self.graph.num_nodes, self.graph.relations, self.x, self.edge_attr, self.edge_splits)

    def header(self) -> dict[str, Any]:
        """Return the entries that ``save`` writes to the folder's header."""
        by_relation = {"edge_features": self.edge_attr, "edge_splits": self.edge_splits}
        own = {"seed_type": self.seed_type, "features": list(self.x)} | {name: list(map(list, of)) for name, of in by_relation.items()}
        return BaseDataset.header(self) | own

    def with_reverse(self) -> HeteroDataset:
        """Return a copy with reverse relations, as ``HeteroGraph.with_reverse`` builds them. Reversed edges share the features of their originals."""
        graph = self.graph.with_reverse()
        turned = dict(zip(list(graph.relations)[len(self.graph.relations) :], self.graph.relations, strict=True))
        edge_attr = {**self.edge_attr, **{new: self.edge_attr[old] for new, old in turned.items() if old in self.edge_attr}}
        return replace(self, graph=graph, edge_attr=edge_attr, meta={**self.meta, "reverse": "added"}, path=None, validate=False)

    @classmethod
    def _parts_in(cls, path: Path, arrays: dict[str, Array], meta: Mapping[str, Any], is_new: bool) -> dict[str, Any]:
        # older versions stored the graph in a subfolder, named edge splits differently, or stored neither edge splits nor edge features
        is_old = "relations" not in meta
        prefix = "edge_split_" if is_old else "edges_of_"
        return {
            "graph": HeteroGraph.open(path / "graph", verify=is_new or None) if is_old else HeteroGraph.from_arrays(arrays, meta, is_new),
            "seed_type": meta["seed_type"],
            "x": {kind: rows_in(arrays, f"x_{number}") for number, kind in enumerate(meta["features"])},
            "edge_attr": {tuple(key): rows_in(arrays, f"edge_attr_{number}") for number, key in enumerate(meta.get("edge_features", []))},
            "edge_splits": {
                tuple(key): with_prefix(arrays, f"{prefix}{number}_") for number, key in enumerate(meta.get("edge_splits", []))
            },
        }

    @classmethod
    def from_dgl(cls, graph: Any, seed_type: str | None = None, *, name: str = "data") -> HeteroDataset:
        """Read a heterogeneous ``dgl.DGLGraph``: ``feat`` of nodes and edges, and ``label`` and masks of ``seed_type``.

        ``seed_type`` is by default the only node type with a ``label``. Edges keep DGL's ids. DGL gives weights no fixed name: pass them to
        ``HeteroGraph.from_edges``. A warning and ``meta["not_carried"]`` name the fields that are dropped.

        Raises:
            InputError: no or several types have labels and ``seed_type`` is not given, or a field is not valid in a data set.
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
            splits=masks_in(seeds),
            meta=_left_out(name, left, seed_type, "label"),
        )

    @classmethod
    def from_pyg(
        cls, data: Any, seed_type: str | None = None, *, name: str = "data", weight_attr: str | None = None, time_attr: str | None = None
    ) -> HeteroDataset:
        """Read a ``torch_geometric.data.HeteroData``: its edges and, if set, ``x`` of node types and ``edge_attr`` of edge types.

        Labels ``y`` and masks, named as in ``Dataset.from_pyg``, are read from ``seed_type``. A warning and ``meta["not_carried"]`` name the
        attributes that are dropped.

        Args:
            data: the ``HeteroData`` object.
            seed_type: node type to train on; by default the only node type with a ``y``.
            name: name of the data set in messages.
            weight_attr: name of the edge attribute with weights; at least one edge type must have it.
            time_attr: name of an edge or node attribute with integer times. With node times, an edge has its source's time.

        Raises:
            InputError: no or several types have labels and ``seed_type`` is not given, or an attribute is not valid in a data set.
        """
        graph = HeteroGraph.from_pyg(data, weight_attr=weight_attr, time_attr=time_attr)
        labelled = [kind for kind in data.node_types if getattr(data[kind], "y", None) is not None]
        seed_type = _seed_type(name, labelled, seed_type)
        seeds = data[seed_type] if seed_type in data.node_types else {}  # data[seed_type] would create a missing type
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
            y=seeds.get("y"),
            splits=masks_in(seeds),
            meta=_left_out(name, left, seed_type, "y", "; weight_attr and time_attr name weights and times"),
        )


def _left_out(name: str, held: Mapping[Any, set[Any]], seed_type: str, labels: str, remedy: str = "") -> dict[str, Any]:
    """Return ``not_carried()`` for the attributes ``held`` of each type, except for labels and masks of ``seed_type``, which are converted."""
    of_seeds = {labels, *MASKS}
    left = (
        f"{kind if isinstance(kind, str) else relation_name(kind)} {key}"
        for kind, keys in held.items()
        for key in (keys - of_seeds if kind == seed_type else keys)
    )
    return not_carried(name, "HeteroDataset", left, remedy)


def _seed_type(name: str, labelled: list[str], seed_type: str | None) -> str:
    """Return the given seed type, or the only type with labels."""
    if seed_type is None and len(labelled) != 1:
        raise InputError(
            f"{name}: labels of {', '.join(labelled) or 'no type'}: models are trained on the nodes of one type; name it with seed_type"
        )
    return seed_type or labelled[0]
