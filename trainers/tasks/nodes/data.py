"""Data modules of node classification, for homogeneous and heterogeneous graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

from hoptrain.engine import Dataset, HeteroDataset, InputError, load_dataset, load_hetero_dataset
from hoptrain.engine.datasets.tables.encodings import without_encodings
from hoptrain.engine.errors import check_choice, explain_keywords
from hoptrain.engine.features.splits import SPLITS
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.engine.transforms.full_supervision import fully_supervised
from hoptrain.engine.transforms.made_features import make_features
from hoptrain.engine.transforms.metapaths import with_metapaths
from hoptrain.samplers import Sampler
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.trainers.models.hetero.gnn import relations_by_layer
from hoptrain.trainers.tasks.shared_data import SampledDataModule, open_data, warn_of_overlaps

Features = Literal["stored", "degrees", "walks"]


@explain_keywords
class NodeDataModule(SampledDataModule):
    """A data module for node-level tasks: it loads a data set and trains on mini-batches from sampler processes.

    Validation, test and predict loaders yield node ids, which the model evaluates from full neighbourhoods; with an ``eval_sampler`` they yield
    mini-batches. For prediction, the data set needs no labels and may have other nodes than the one of the training.

    Examples:
        >>> from hoptrain import NodeDataModule, NeighborSampler
        >>> data = NodeDataModule("digits-knn", NeighborSampler([10, 5]), batch_size=256, num_workers=0, seed=1)
        >>> data.num_features, data.num_classes, data.num_hops
        (64, 10, 2)
        >>> len(data.train_dataloader()), next(iter(data.train_dataloader())).num_seeds
        (5, 256)
    """

    data: Dataset
    needs_features: ClassVar[bool] = True
    of_vertices = True

    def __init__(
        self,
        dataset: str | Dataset,
        sampler: Sampler,
        root: str | None = None,
        scale: float = 1.0,
        in_memory: bool = False,
        features: Features = "stored",
        partitions: str | None = None,
        full_supervision: bool = False,
        **feed: Any,
    ) -> None:
        """Open the data set. The first time, convert, download or generate it.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
            sampler: sampling algorithm, for instance NeighborSampler with its fanouts.
            root: folder with the data sets' files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set relative to the real one.
            in_memory: copy graph and features into the memory of the training process, which makes sampling faster; requires num_workers=0.
            features: stored takes the data set's features; degrees or walks computes features from the graph instead.
            partitions: folder written by 'hoptrain data partition' with the partitioned data set. Each machine needs only its own partition.
            full_supervision: train on all labelled nodes outside the validation and test splits, as in the FastGCN paper and its successors.
            feed: further options of ``SampledDataModule``, such as batch_size and num_workers.
        """
        _check_sampler(sampler)
        self._is_partitioned = partitions is not None
        self.sampler = sampler  # the training nodes may depend on the sampler, and the sampler on the data
        if partitions is None:
            found = open_data(dataset, load_dataset, root=root, scale=scale)
        else:
            found = self._in_parts(dataset, partitions, scale=scale, root=root, in_memory=in_memory, features=features)
        if full_supervision and not self.of_vertices:
            raise InputError(f"full_supervision with {type(self).__name__}: it is for labels of nodes, as in task: nodes; leave it out")
        data = with_features(self.prepare(fully_supervised(found) if full_supervision else found), features, self.needs_features)
        super().__init__(data, self.sampler, **feed)
        if in_memory and self.num_workers:
            raise InputError(
                f"in_memory with {self.num_workers} workers: workers read the data set's files; set num_workers=0, or leave in_memory out"
            )
        if in_memory:
            self.data = self.data.in_memory()

    def _in_parts(self, dataset: str | Dataset, partitions: str, **options: Any) -> Dataset:
        """Open the partitioned data set in a folder.

        Raises:
            InputError: the folder holds another data set, or the task or an option does not support partitions; see also ``open_partitioned``.
        """
        plain = {"root": None, "in_memory": False, "features": "stored"}
        for name, value in options.items():
            if value != plain.get(name, value):
                raise InputError(f"{name} is {value} with partitions: data are read from the partitions' folder; leave it out")
        if not self.of_vertices:
            raise InputError(f"partitions with {type(self).__name__}: they are for node-level tasks, such as task: nodes; leave it out")
        from hoptrain.engine.partition.rows import open_partitioned
        from hoptrain.trainers.multinode.comm_process import links

        data = open_partitioned(partitions, links())
        if options["scale"] != data.meta.get("scale", 1.0):
            raise InputError(
                f"scale is {options['scale']}, and {partitions} holds partitions of {data.name} at scale {data.meta.get('scale', 1.0)}: give this scale"
            )
        if dataset != data.name:
            given = dataset if isinstance(dataset, str) else f"{dataset.name}, in memory"
            raise InputError(f"dataset is {given}, and {partitions} holds partitions of {data.name}: set dataset to {data.name}")
        return data

    def prepare(self, data: Dataset) -> Dataset:
        """Return the data set to train on. A subclass may change the data set here. Features computed from the graph are computed after this call."""
        warn_of_overlaps(data.name, data.splits, "nodes")
        return data

    def check_labels(self) -> None:
        """Raise InputError if the data set has no labels. Only prediction, and a LightningModule of your own, need none.

        Raises:
            InputError: the data set has no labels.
        """
        data = self.data
        if data.y is None:
            tasks = "task: graphs classifies its graphs" if "graph_ptr" in data.meta.get("not_carried", ()) else "task: links needs none"
            raise InputError(f"{data.name} has no labels: node classification needs labels; {tasks}, or choose another data set")

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or targets."""
        if not self.data.num_classes and self.of_vertices:
            self.check_labels()
        return self.data.num_classes

    @property
    def num_features(self) -> int:
        """Number of features of a node; 0 without features."""
        return self.data.num_features

    @property
    def num_edge_features(self) -> int:
        """Number of features of an edge; 0 without edge features."""
        return self.data.num_edge_features

    @property
    def is_multilabel(self) -> bool:
        """True if a node may have several labels."""
        return self.data.is_multilabel


def _check_sampler(sampler: object) -> None:
    if not isinstance(sampler, Sampler) or isinstance(sampler, BaseHeteroSampler):
        rule = "a sampler of homogeneous graphs, such as NeighborSampler([10, 10]); HeteroSampler is for task: hetero"
        raise InputError(f"sampler is {sampler!r}: it must be {rule}")


def with_features(data: Dataset, features: Features, is_needed: bool = True) -> Dataset:
    """Return the data set with its own features, or with features computed from its graph (see ``make_features``).

    Raises:
        InputError: features are needed, but the data set has none and none are computed; or ``features`` has an unknown value.
    """
    check_choice("features", features, get_args(Features))
    if features != "stored":
        return replace(data, x=make_features(data.graph, features), meta=without_encodings(data.meta, "x"), validate=False)
    if data.x is None and is_needed:
        raise InputError(f"{data.name} has no features: a model needs some; compute them from the graph with features: walks (or degrees)")
    return data


class HeteroSizes(SampledDataModule):
    """A base class of data modules of heterogeneous graphs, with the sizes that a model is built from."""

    @property
    def num_features(self) -> dict[str, int]:
        """Number of features F_t by node type, for the types with features."""
        return {name: int(rows.shape[1]) for name, rows in self.data.x.items()}

    @property
    def num_nodes(self) -> dict[str, int]:
        """Number of nodes V_t by type, for the types without features."""
        return {name: number for name, number in self.data.graph.num_nodes.items() if name not in self.data.x}

    @property
    def edge_channels(self) -> dict[str, int]:
        """Number of features of an edge by relation, for the relations with edge features."""
        return {relation_name(relation): int(rows.shape[1]) for relation, rows in self.data.edge_attr.items()}

    @property
    def relations(self) -> list[str]:
        """Names ``source:name:destination`` of the relations."""
        return [relation_name(relation) for relation in self.data.graph.relations]


def check_within_reach(data: HeteroDataset, seed_types: Sequence[str], num_hops: int) -> None:
    """Raise InputError if a model of ``num_hops`` layers cannot learn from the data.

    Raises:
        InputError: within ``num_hops`` of the seeds, a relation has no edges or a type has no nodes.
    """
    for relation in relations_by_layer(list(data.graph.relations), seed_types, num_hops)[0]:
        empty = next((name for name in (relation[0], relation[2]) if not data.graph.num_nodes[name]), None)
        if empty is not None:
            raise InputError(f"{data.name}: type {empty} has no nodes: nothing can be learnt from it; remove the type and its relations")
        if not data.graph.relations[relation].num_edges:
            raise InputError(
                f"{data.name}: relation {relation_name(relation)} has no edges: nothing can be learnt from it; remove the relation"
            )


def _with_splits(data: HeteroDataset, suffix: str) -> HeteroDataset:
    """Return the data set with its splits ``train_SUFFIX`` and so on as ``train``, ``val`` and ``test``; with the suffix random also with random splits.

    Raises:
        InputError: the data set has no such splits.
    """
    names = {split: f"{split}_{suffix}" for split in SPLITS}
    missing = next((name for name in names.values() if name not in data.splits), None)
    if suffix == "random" and missing is not None:
        return data.with_random_splits()
    if missing is not None:
        raise InputError(
            f"splits is {suffix!r}: {data.name} has no split {missing} (it has {', '.join(data.splits) or 'none'}); give --data.splits null for splits "
            "without a suffix or --data.splits random, or train your own data with --config own_hetero"
        )
    return replace(data, splits={split: data.split(name) for split, name in names.items()}, validate=False)


@explain_keywords
class HeteroDataModule(HeteroSizes):
    """A data module that loads a heterogeneous data set and trains on mini-batches from a sampler of heterogeneous graphs.

    For prediction, the data set needs no labels, and node types and relations may be empty.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import HeteroDataModule, HeteroDataset, HeteroGraph, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 1, 2])}).with_reverse()
        >>> data = HeteroDataset(graph=graph, seed_type="item", x={"user": np.eye(2)}, y=np.array([0, 1, 1]), splits={"train": np.arange(3)})
        >>> module = HeteroDataModule(data, HeteroSampler([2, 2], "item"), batch_size=2, num_workers=0, seed=1)
        >>> module.num_features, module.num_nodes  # number of features by type, and of nodes of the types without features
        ({'user': 2}, {'item': 3})
        >>> next(iter(module.train_dataloader())).node_ids
        {'user': array([0, 1], dtype=int32), 'item': array([0, 2, 1], dtype=int32)}
    """

    of_vertices = True

    def __init__(
        self,
        dataset: str | HeteroDataset,
        sampler: Sampler,
        root: str | None = None,
        scale: float = 1.0,
        add_reverse: bool = False,
        splits: str | None = None,
        metapaths: list[list[str]] | None = None,
        seed_type: str | None = None,
        **feed: Any,
    ) -> None:
        """Open the data set. The first time, convert or download it.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a
                ``HeteroDataset``.
            sampler: a ``HeteroSampler`` with its fanouts; its ``seed_type`` is by default that of the data set.
            root: folder with the data sets' files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set relative to the real one.
            add_reverse: add the reverse of each relation NAME as a relation rev_NAME.
            splits: suffix that selects splits if the data set has several: for instance, 60 selects train_60, val_60 and test_60. The word random splits
                the labelled nodes 60/20/20, in the same way in every run and on every machine.
            metapaths: replace the relations by relations along these metapaths, such as [[paper, author, paper]]; see ``with_metapaths``.
            seed_type: node type to classify; needed if several tables of a folder have labels.
            feed: further options of ``SampledDataModule``, such as batch_size and num_workers.

        Raises:
            InputError: the sampler does not match the data set; see also ``with_metapaths``.
        """
        from hoptrain.samplers import HeteroPinSAGESampler  # not imported for the other data modules

        data = open_data(dataset, load_hetero_dataset, root=root, scale=scale, add_reverse=add_reverse, seed_type=seed_type)
        if splits is not None:
            data = _with_splits(data, splits)
        if isinstance(sampler, HeteroPinSAGESampler):
            raise InputError(
                "sampler is a HeteroPinSAGESampler: its batches are homogeneous, but task hetero needs relations; use a HeteroSampler"
            )
        if metapaths is not None:
            data = with_metapaths(data, metapaths)
        sampler.check_data(data)
        if isinstance(sampler, BaseHeteroSampler):
            sampler = sampler.with_seed_type(data.seed_type)
        if (own := getattr(sampler, "seed_type", None)) != data.seed_type:
            raise InputError(
                f"the sampler's seed_type is {own!r}, that of {data.name} is {data.seed_type!r}: set the sampler's to {data.seed_type!r}"
            )
        super().__init__(data, sampler, **feed)

    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """Return the training loader of a rank.

        Raises:
            InputError: the model cannot learn from the data (see ``check_within_reach``).
        """
        check_within_reach(self.data, [self.seed_type], self.sampler.num_hops)
        return super().make_loader(rank, world_size, seed)

    def check_labels(self) -> None:
        """Raise InputError if the data set has no labels. Only prediction, and a LightningModule of your own, need none.

        Raises:
            InputError: the data set has no labels.
        """
        if self.data.y is None:
            raise InputError(f"{self.data.name} has no labels: task hetero learns labels of the nodes of type {self.seed_type}; give a y")

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or targets."""
        if not self.data.num_classes:
            self.check_labels()
        return int(self.data.num_classes)

    @property
    def is_multilabel(self) -> bool:
        """True if a node may have several labels."""
        return bool(self.data.is_multilabel)

    @property
    def seed_type(self) -> str:
        """Type of the nodes that are classified."""
        return str(self.data.seed_type)
