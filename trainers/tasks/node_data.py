"""The data of a run for Lightning: a data set by name or in memory, sampled batches for training, plain vertex ids for everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, InputError, load_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.derived.full_supervision import fully_supervised
from hoptrain.engine.derived.made_features import make_features
from hoptrain.engine.errors import check_choice
from hoptrain.engine.queue.options import DEFAULTS, QueueOptions
from hoptrain.samplers import SampleLoader, Sampler, WeightedSeedSampler
from hoptrain.samplers.feed.epochs import EpochLoader
from hoptrain.samplers.seeds.weighted import class_shares
from hoptrain.samplers.typed import TypedSampler
from hoptrain.trainers.tasks.shared_data import SharedDataModule, opened, say_overlaps

Features = Literal["stored", "degrees", "walks"]


class NodeBatch(NamedTuple):
    """Vertices to evaluate exactly: what validation, test and predict loaders give, one batch a rank.

    Attributes:
        node_ids: (N,) int64 global ids.
        y: (N,) or (N, C) labels, or None.
    """

    node_ids: Tensor
    y: Tensor | None


class SampledDataModule(SharedDataModule):
    """Feeds training from sampler processes; validation, test and predict loaders give vertex ids, for exact evaluation by full neighbourhoods.

    Attributes:
        data: the data set.
        sampler: the sampling algorithm.
    """

    def __init__(
        self,
        data: Any,
        sampler: Sampler[Any, Any],
        batch_size: int = 1024,
        num_workers: int | None = None,
        seed: int | None = None,
        queue: QueueOptions = DEFAULTS,
        sampler_device: str = "cpu",
        bulk: int | None = None,
        graph_placement: str = "auto",
        feature_placement: str = "auto",
        device_cache: float | str | None = None,
        capture: bool = True,
        memory: str | None = None,
        lookahead: int | None = None,
        balanced: bool = False,
    ) -> None:
        """Take data that are open.

        Args:
            data: the data set.
            sampler: the sampling algorithm.
            batch_size: seeds per rank and step.
            num_workers: sampler processes per rank, by default 2; 0, the default with sampler_device cuda, samples in the training process.
            seed: seed of the order and of the samples; by default that of seed_everything.
            queue: how batches come from the sampler processes.
            sampler_device: where batches are sampled, cpu or cuda: with num_workers=0 on the training GPU, beside the training; with more in
                processes that share the GPU, or with cuda:1 have another one.
            bulk: batches sampled at once on cuda with num_workers=0; by default as many as have 8,192 seeds together, from 2 to 64.
            graph_placement: where the sampler on cuda reads the graph: device memory, pinned host memory, or auto, by what is free.
            feature_placement: where features are gathered from with sampler_device cuda and num_workers 0: device, pinned or auto.
            device_cache: what each GPU keeps of features in pinned memory, the rows that are read most: bytes such as 2GiB, or a share such as 0.1.
            capture: with sampler_device cuda whether a bulk of a shape that there was before is queued by one call, a CUDA graph.
            memory: bytes such as 8GiB that each machine spends on features which are read from the disk, or auto for what is left there.
            lookahead: with memory, steps ahead whose rows are known; by default 256.
            balanced: draw an epoch's seeds with replacement so that every class of the training split comes as often (``WeightedSeedSampler``).
        """
        super().__init__(batch_size, seed)
        self.data: Any = data
        self.sampler: Sampler[Any, Any] = _balanced(data, sampler) if balanced else sampler
        self.num_workers: int = num_workers if num_workers is not None else 0 if sampler_device == "cuda" else 2
        places = {"graph_placement": graph_placement, "feature_placement": feature_placement, "device_cache": device_cache}
        self._feed_options: dict[str, Any] = {"queue": queue, "device": sampler_device, "bulk": bulk, "capture": capture, **places}
        self._feed_options |= {"memory": memory, "lookahead": lookahead}

    @property
    def num_hops(self) -> int:
        """Hops of a mini-batch."""
        return self.sampler.num_hops

    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """See ``SharedDataModule``. Where batches are copied to a GPU, the workers' memory is locked."""
        device = None if self.trainer is None else self.trainer.strategy.root_device
        gpu = device.index if device is not None and device.type == "cuda" else None
        page_lock = self.num_workers > 0 and gpu is not None
        options: dict[str, Any] = {"batch_size": self.batch_size, "num_workers": self.num_workers, "seed": seed, "page_lock": page_lock}
        options |= {"rank": rank, "world_size": world_size} | self._feed_options
        options["device"] = _sampler_device(options["device"], gpu, self.num_workers)
        loader: EpochLoader[Any] = self.of_strategy("make_loader", SampleLoader)(self.data, self.sampler, **options)
        return loader

    def state_dict(self) -> dict[str, Any]:
        """Where the training is, and what the sampler has learnt from it."""
        state = super().state_dict()
        return state and state | {"sampler": {name: torch.from_numpy(np.array(array)) for name, array in self.sampler.state().items()}}

    def go_on(self, loader: EpochLoader[Any], state: dict[str, Any]) -> None:
        """See ``SharedDataModule``."""
        super().go_on(loader, state)
        self.sampler.load_state({name: tensor.numpy() for name, tensor in state["sampler"].items()})

    def val_dataloader(self) -> DataLoader[NodeBatch]:
        """This rank's share of the validation split; nothing if there is none."""
        return self._node_batches(self.data.splits.get("val", np.empty(0, np.int64)))

    def test_dataloader(self) -> DataLoader[NodeBatch]:
        """This rank's share of the test split."""
        return self._node_batches(self.data.split("test"))

    def predict_dataloader(self) -> DataLoader[NodeBatch]:
        """This rank's share of all vertices."""
        return self._node_batches(np.arange(self.data.num_seed_nodes))

    def _node_batches(self, nodes: Array) -> DataLoader[NodeBatch]:
        """One batch for each rank, so that all make the same number of steps; contiguous shares, in order."""
        mine = self.share(nodes)
        y = None if self.data.y is None else torch.from_numpy(np.take(self.data.y, mine, axis=0))
        batches = [NodeBatch(torch.from_numpy(mine.astype(np.int64)), y)] if len(nodes) else []
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class GraphDataModule(SampledDataModule):
    """Loads a data set and feeds training from sampler processes.

    Validation, test and predict loaders give vertex ids: the model evaluates them exactly, by full neighbourhoods.

    Examples:
        >>> from hoptrain import GraphDataModule, NeighborSampler
        >>> data = GraphDataModule("digits-knn", NeighborSampler([10, 5]), batch_size=256, num_workers=0, seed=1)
        >>> data.num_features, data.num_classes, data.num_hops
        (64, 10, 2)
        >>> len(data.train_dataloader()), next(iter(data.train_dataloader())).num_seeds
        (5, 256)
    """

    data: Dataset
    needs_features: ClassVar[bool] = True
    of_vertices: ClassVar[bool] = True

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
        """Open the data set (and convert, download or generate it the first time).

        Args:
            dataset: name ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
            sampler: the sampling algorithm, for instance NeighborSampler with its fanouts.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            in_memory: copy graph and features into this process's memory first, which makes sampling in it faster; with num_workers=0 only.
            features: stored takes those of the data set; degrees and walks make some from the graph alone, in place of any that it has.
            partitions: folder written by 'hoptrain data partition': the data set in parts, of which each machine needs its own alone.
            full_supervision: train on all vertices with a label but those for validation and test, as FastGCN's paper and those after it do.
            feed: as ``SampledDataModule``.
        """
        _check_sampler(sampler)
        self._is_parted = partitions is not None
        self.sampler = sampler  # what is trained on may depend on it, and it on the data
        if partitions is None:
            found = opened(dataset, load_dataset, root=root, scale=scale)
        else:
            found = self._in_parts(dataset, partitions, scale=scale, root=root, in_memory=in_memory, features=features)
        if full_supervision and not self.of_vertices:
            raise InputError(f"full_supervision with {type(self).__name__}: it is about labels of vertices, as task: nodes; leave it out")
        data = with_features(self.prepare(fully_supervised(found) if full_supervision else found), features, self.needs_features)
        super().__init__(data, self.sampler, **feed)
        if in_memory and self.num_workers:
            raise InputError(
                f"in_memory with {self.num_workers} workers: they share the data set's files; set num_workers=0, or leave it out"
            )
        if in_memory:
            self.data = self.data.in_memory()

    def _in_parts(self, dataset: str | Dataset, partitions: str, **options: Any) -> Dataset:
        """The data set in parts.

        Raises:
            InputError: the parts of another data set, a task or an option that does not go with parts; as ``open_parted``.
        """
        plain = {"root": None, "in_memory": False, "features": "stored"}
        for name, value in options.items():
            if value != plain.get(name, value):
                raise InputError(f"{name} is {value} with partitions: features lie in the parts, and are read from there; leave it out")
        if not self.of_vertices:
            raise InputError(f"partitions with {type(self).__name__}: parts are for tasks on vertices, as task: nodes; leave it out")
        from hoptrain.engine.partition.rows import open_parted
        from hoptrain.trainers.parts.carrier import links

        data = open_parted(partitions, links())
        if options["scale"] != data.meta.get("scale", 1.0):
            raise InputError(
                f"scale is {options['scale']}, and {partitions} holds the parts of {data.name} at {data.meta.get('scale', 1.0)}: correct it"
            )
        if dataset != data.name:
            given = dataset if isinstance(dataset, str) else f"{dataset.name}, in memory"
            raise InputError(f"dataset is {given}, and {partitions} holds the parts of {data.name}: set dataset to {data.name}")
        return data

    def prepare(self, data: Dataset) -> Dataset:
        """What of the data set is trained on; features that are made come from its graph.

        Raises:
            InputError: it has no labels.
        """
        if data.y is None:
            tasks = "task: graphs classifies its graphs" if "graph_ptr" in data.meta.get("not_carried", ()) else "task: links needs none"
            raise InputError(f"{data.name} has no labels: node classification needs them; {tasks}, or choose another data set")
        say_overlaps(data.name, data.splits, "vertices")
        return data

    @property
    def num_features(self) -> int:
        """F."""
        return self.data.num_features

    @property
    def num_edge_features(self) -> int:
        """D, 0 without features of edges."""
        return self.data.num_edge_features

    @property
    def is_multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.data.is_multilabel


def _sampler_device(device: str, gpu: int | None, num_workers: int) -> str:
    """Where to sample: the GPU that the training has is told, since neither the process, before it has begun, nor its workers know it.

    Args:
        device: what was asked for.
        gpu: number of the training's GPU; None if it has none.
        num_workers: of the rank.

    Raises:
        InputError: another GPU, without a process that could have it.
    """
    if device == "cuda" and gpu is not None:
        return f"cuda:{gpu}"
    if device.startswith("cuda:") and num_workers == 0 and gpu is not None and device != f"cuda:{gpu}":
        raise InputError(
            f"sampler_device is {device} with num_workers 0, and the training runs on cuda:{gpu}: a GPU of its own is for sampler processes; "
            "set num_workers, or give cuda"
        )
    return device


def _balanced(data: Any, sampler: Sampler[Any, Any]) -> Sampler[Any, Any]:
    """The sampler, with seeds that are drawn.

    Raises:
        InputError: labels that are no classes, or a sampler that chooses its seeds itself.
    """
    if not sampler.by_seeds or data.y is None or data.y.ndim != 1 or data.y.dtype.kind == "f":
        reason = "labels that are no classes" if sampler.by_seeds else f"{type(sampler).__name__}, which says itself what a batch is about"
        raise InputError(f"balanced with {reason}: it draws vertices by their class; leave it out")
    return WeightedSeedSampler(sampler, class_shares(data.y, data.split("train")))


def _check_sampler(sampler: object) -> None:
    if not isinstance(sampler, Sampler) or isinstance(sampler, TypedSampler):
        rule = "a sampler of a graph without types, such as NeighborSampler([10, 10]); HeteroSampler's batches are for task: hetero"
        raise InputError(f"sampler is {sampler!r}: training takes {rule}")


def with_features(data: Dataset, features: Features, is_needed: bool = True) -> Dataset:
    """The data set with the features it has, or with others made from its graph (see ``make_features``).

    Raises:
        InputError: it has none, though they are needed, and none are to be made; another word than these.
    """
    check_choice("features", features, get_args(Features))
    if features != "stored":
        return replace(data, x=make_features(data.graph, features), validate=False)
    if data.x is None and is_needed:
        raise InputError(f"{data.name} has no features: a model needs some; make them from the graph by features: walks (or degrees)")
    return data
