"""Base classes of data modules: they shard data across ranks, and a resumed run continues after the last batch of the checkpoint."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import LightningDataModule, Trainer
from pytorch_lightning.trainer.states import TrainerStatus
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.features.splits import SPLITS
from hoptrain.engine.machine import keep_freed_memory
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers import SampleLoader, Sampler, WeightedSeedSampler
from hoptrain.samplers.checks import check_distinct
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.wrappers.weighted import class_shares
from hoptrain.trainers.callbacks.predictions import numbers_of, own_ids
from hoptrain.trainers.lightning_package import ignore_wrong_advice
from hoptrain.trainers.resume.checkpoints import keep_checkpoints_whole
from hoptrain.trainers.resume.exact_resume import ExactResume
from hoptrain.trainers.tasks.options import check_share

_log = logging.getLogger(__name__)
Data = TypeVar("Data")


class SharedDataModule(LightningDataModule):
    """A base data module that shards training and evaluation across ranks, and saves the position in the training loop.

    Attributes:
        data: the data set.
        loader: the training loader; None before the trainer has requested it.
        seed: seed of the order of examples; by default that of seed_everything.
        predict_ids: the nodes (or images, or graphs) that ``trainer.predict`` computes, in this order: integers (N,) are node numbers, strings are
            ids of the tables that the data set was imported from. None for all of them.
    """

    data: Any
    predict_ids: Sequence[int | str] | Array | None = None
    _is_partitioned = False

    def __init__(self, batch_size: int, seed: int | None) -> None:
        """Store the number of examples per rank and step, and the seed."""
        super().__init__()
        self.batch_size = batch_size
        self.seed: int = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.loader: EpochLoader[Any] | None = None
        self._resume_from: dict[str, Any] | None = None

    def __str__(self) -> str:
        """Return a short description. Lightning's default would draw a batch from every loader."""
        return f"{type(self).__name__}(batch_size={self.batch_size}, seed={self.seed})"

    @property
    def trainer(self) -> Trainer | None:
        """Lightning's trainer. Lightning sets it when a run begins, before the rendezvous of its ranks, so ranks of a custom script are checked here.

        Raises:
            InputError: the ranks do not find one another (see ``rendezvous``).
        """
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        self._trainer = trainer
        if isinstance(trainer, Trainer):  # otherwise Lightning would shard each rank's data once more
            trainer._accelerator_connector.use_distributed_sampler = False
        if isinstance(trainer, Trainer) and trainer.state.status == TrainerStatus.RUNNING and trainer.world_size > 1:
            from hoptrain.trainers.callbacks.rendezvous import rendezvous

            # a reference that keeps the store alive until the process group exists
            self._store = rendezvous(trainer, waits_for_all=self._is_partitioned)

    @abstractmethod
    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """Return the training loader of a rank; in a pipeline, the loader of this process's stage and model replica.

        It starts no processes, so it can also be used to check sizes before a run.
        """

    def from_strategy(self, name: str, otherwise: Any) -> Any:
        """Return an attribute of the trainer's strategy, or ``otherwise`` if it has none. The pipeline strategy provides its own loaders and limits."""
        return getattr(getattr(self.trainer, "strategy", None), name, otherwise)

    def setup(self, stage: str) -> None:
        """Attach the callbacks that complete checkpoints before other callbacks can write any. On a CPU, make the allocator keep freed memory.

        Suppress warnings of Lightning that do not apply.
        """
        trainer: Any = self.trainer
        ignore_wrong_advice()
        keep_checkpoints_whole(trainer)
        if getattr(getattr(trainer, "strategy", None), "root_device", None) == torch.device("cpu"):
            keep_freed_memory()
        if stage == "fit" and 0 < getattr(trainer, "overfit_batches", 0) < 1:
            check_share("overfit_batches", trainer.overfit_batches, len(self.val_dataloader()), "validation")
        if stage == "fit" and trainer is not None and self._resume is None:
            ExactResume().attach(trainer)

    @property
    def _resume(self) -> ExactResume | None:
        callbacks = getattr(self.trainer, "callbacks", [])
        return next((callback for callback in callbacks if isinstance(callback, ExactResume)), None)

    def train_dataloader(self) -> EpochLoader[Any]:
        """Return the loader of this rank's share of the training split."""
        trainer: Any = self.trainer
        if trainer is None:
            return self.make_loader(0, 1, self.seed)
        if self.loader is not None:
            self.loader.close()
        # All ranks use rank 0's seed: with different seeds their shares would overlap.
        self.loader = self.make_loader(*share_of(trainer), trainer.strategy.broadcast(self.seed))
        self.loader.repeats = trainer.overfit_batches > 0
        if self._resume_from is not None:
            self.restore_position(self.loader, self._resume_from)
            self._resume_from = None
        return self.loader

    def restore_position(self, loader: EpochLoader[Any], state: dict[str, Any]) -> None:
        """Move the loader to the position that a checkpoint recorded.

        Raises:
            InputError: the checkpoint is in the middle of an epoch, and this run would have other batches in that epoch.
        """
        theirs, ours = state["schedule"], _facts(loader.schedule)
        different = [f"{name} {theirs[name]} ({ours[name]} here)" for name in ours if theirs[name] != ours[name]]
        if different and state["step"] and not state["ended"]:
            raise InputError(
                f"the checkpoint is at batch {state['step']} of epoch {state['epoch']}, which was divided with {', '.join(different)}; "
                "resume with the same values, or from a checkpoint at the end of an epoch"
            )
        loader.load_state_dict({"epoch": state["epoch"], "step": len(loader) if state["ended"] else state["step"]})

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last trained batch, for a checkpoint."""
        if self.loader is None or self._resume is None or self.trainer is None:
            return {}
        place = self._resume.position(self.trainer)
        return {"epoch": place.epoch, "step": place.step, "ended": place.ended, "schedule": _facts(self.loader.schedule)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the training loader continue from a checkpoint."""
        self._resume_from = state_dict or None

    def teardown(self, stage: str) -> None:
        """Stop the sampler processes."""
        if self.loader is not None:
            self.loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """Stop the sampler processes when Lightning does not reach ``teardown``."""
        self.teardown("")

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or targets."""
        num_classes: int = self.data.num_classes
        return num_classes

    @property
    def world_size(self) -> int:
        """Number of ranks across which evaluation is sharded; for prediction in a pipeline, the number of model replicas."""
        return self._place[1]

    @property
    def _place(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return share_of(self.trainer) if self.trainer.predicting else (self.trainer.global_rank, self.trainer.world_size)

    def share(self, items: Array) -> Array:
        """Return the contiguous range of ``items`` (N,) that this rank evaluates."""
        return np.array_split(items, self.world_size)[self._place[0]]

    def every_item(self) -> Array:
        """Return the ids (N,) of all items that can be predicted."""
        raise NotImplementedError

    def items_to_predict(self) -> Array:
        """Return the numbers (N,) of the items in ``predict_ids``, or of all items.

        Raises:
            InputError: an id does not exist, or is given twice.
        """
        every = self.every_item()
        if self.predict_ids is None:
            return every
        ids = np.asarray(self.predict_ids)
        if ids.ndim != 1 or not len(ids) or not (is_integer(ids.dtype) or ids.dtype.kind in "UO"):
            raise InputError(
                f"predict_ids are {ids.dtype} of shape {ids.shape}: they must be at least one node number or id of a node; give an array of integers or strings"
            )
        if ids.dtype.kind in "UO":
            ids = numbers_of(ids, self.data, "predict_ids")
        if len(unknown := ids[~np.isin(ids, every)]):
            own = own_ids(self.data)
            number = [] if own is None else np.flatnonzero(own == unknown[0]).tolist()
            remedy = f"{unknown[0]} is the id of node {number[0]}: give this number, or the id as a string" if number else "drop it"
            raise InputError(
                f"predict_ids has {unknown[0]}: integers are node numbers, and {self.data.name} has {len(every):,}, up to {every.max(initial=0)}; {remedy}"
            )
        return check_distinct(ids, "give each id once")


class NodeBatch(NamedTuple):
    """A rank's part of the nodes to evaluate from full neighbourhoods. Validation, test and predict loaders yield one such batch per rank.

    Attributes:
        node_ids: global node ids (N,) int64.
        y: labels (N,) or (N, C), or None.
    """

    node_ids: Tensor
    y: Tensor | None

    @property
    def seeds(self) -> Tensor:
        """Ids of the nodes, equal to ``node_ids``, under the name that mini-batches use."""
        return self.node_ids

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError with a message that tells custom LightningModules how to get mini-batches."""
        raise AttributeError(
            f"NodeBatch has no {name!r}: it has only node_ids and y, for evaluation from full neighbourhoods; give the data module an eval_sampler, "
            "such as NeighborSampler([-1, -1]), for mini-batches in validation, test and predict"
        )


class SampledDataModule(SharedDataModule):
    """A data module that trains on mini-batches from sampler processes.

    Its evaluation loaders yield node ids, which hoptrain's models evaluate from full neighbourhoods, or mini-batches of an ``eval_sampler``.

    Attributes:
        data: the data set.
        sampler: the sampling algorithm.
        eval_sampler: the sampling algorithm of validation, test and predict; None for node ids.
        of_vertices: whether examples are nodes, so that ``eval_sampler`` applies.
        gathers_on_read: whether batches made in this process gather their features when ``x`` is first read; the task sets it before training.
    """

    of_vertices: ClassVar[bool] = False
    gathers_on_read: bool = False

    def __init__(
        self,
        data: Any,
        sampler: Sampler[Any, Any],
        batch_size: int = 1024,
        num_workers: int | None = None,
        seed: int | None = None,
        worker_options: WorkerOptions = DEFAULTS,
        sampler_device: str = "cpu",
        bulk: int | None = None,
        graph_placement: str = "auto",
        feature_placement: str = "auto",
        gpu_cache: float | str | None = None,
        cuda_graphs: bool = True,
        feature_cache: str | None = None,
        prefetch_steps: int | None = None,
        class_balanced_sampling: bool = False,
        eval_sampler: Sampler | None = None,
    ) -> None:
        """Set up sampling from an open data set.

        Args:
            data: the data set, already open.
            sampler: the sampling algorithm.
            batch_size: number of seeds per rank and step.
            num_workers: sampler processes per rank. 0 samples in the training process, which is the default with sampler_device cuda; otherwise the
                default is 2.
            seed: random seed of the order of seed nodes and of the samples; by default that of seed_everything.
            worker_options: options of the queue between the sampler processes and the trainer.
            sampler_device: where batches are sampled, cpu or cuda. With num_workers=0, cuda samples on the training GPU between training steps. With
                workers, the workers share this GPU, or use another one such as cuda:1.
            bulk: number of batches sampled at once on cuda with num_workers=0; by default enough for 8,192 seeds, and 2 to 64.
            graph_placement: memory from which the sampler on cuda reads the graph: device, pinned (host memory, also called UVA), or auto, which
                decides by free memory.
            feature_placement: memory from which features are gathered with sampler_device cuda and num_workers 0: device, pinned or auto.
            gpu_cache: size of a cache on each GPU for the most accessed feature rows: bytes such as 2GiB, or a fraction of the rows such as 0.1. The
                other rows stay in pinned memory.
            cuda_graphs: with sampler_device cuda, record the kernels of a bulk as a CUDA graph and replay it for bulks of the same shape.
            feature_cache: read features from disk, with a cache of this size on each machine: bytes such as 8GiB, or auto for the free memory.
            prefetch_steps: with feature_cache, the number of future steps whose feature rows are planned; by default 256.
            class_balanced_sampling: draw an epoch's seeds with replacement, and all classes of the training split equally often.
            eval_sampler: sampling algorithm of the mini-batches that validation, test and predict get, such as NeighborSampler with fanouts [-1, -1]
                for all neighbours. By default these stages get node ids, and evaluate them layer by layer from full neighbourhoods.

        Raises:
            InputError: ``eval_sampler`` is given for a task whose examples are not nodes, or does not fit the data.
        """
        super().__init__(batch_size, seed)
        self.data: Any = data
        self.eval_sampler: Sampler[Any, Any] | None = None if eval_sampler is None else self._checked(eval_sampler)
        self.sampler: Sampler[Any, Any] = _balanced(data, sampler) if class_balanced_sampling else sampler
        self.num_workers: int = num_workers if num_workers is not None else 0 if sampler_device == "cuda" else 2
        self._feed_options: dict[str, Any] = {
            "worker_options": worker_options,
            "device": sampler_device,
            "bulk": bulk,
            "cuda_graphs": cuda_graphs,
        }
        self._feed_options |= {"graph_placement": graph_placement, "feature_placement": feature_placement, "gpu_cache": gpu_cache}
        self._feed_options |= {"feature_cache": feature_cache, "prefetch_steps": prefetch_steps}

    def _checked(self, eval_sampler: Sampler[Any, Any]) -> Sampler[Any, Any]:
        """Return the sampler after checking that it suits the task and the data."""
        if not self.of_vertices:
            raise InputError(f"eval_sampler with {type(self).__name__}: it is for tasks on nodes, such as task: nodes; leave it out")
        eval_sampler.check_data(self.data)
        return eval_sampler

    @property
    def num_hops(self) -> int:
        """Number of hops of a mini-batch."""
        return self.sampler.num_hops

    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """Return the training loader of a rank. If batches are copied to a GPU, the workers' buffers are in pinned memory."""
        device = None if self.trainer is None else self.trainer.strategy.root_device
        gpu = device.index if device is not None and device.type == "cuda" else None
        pin_memory = self.num_workers > 0 and gpu is not None
        options: dict[str, Any] = {"batch_size": self.batch_size, "num_workers": self.num_workers, "seed": seed, "pin_memory": pin_memory}
        options |= {"rank": rank, "world_size": world_size} | self._feed_options
        options["device"] = _sampler_device(options["device"], gpu, self.num_workers)
        make: Callable[..., EpochLoader[Any]] = self.from_strategy("make_loader", SampleLoader)
        loader = make(self.data, self.sampler, **options)
        if self.gathers_on_read and gpu is None and isinstance(loader, SampleLoader) and loader.can_gather_on_read:
            loader.gather_on_read()
        return loader

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training loop and the sampler's state, for a checkpoint."""
        state = super().state_dict()
        return state and state | {"sampler": {name: torch.from_numpy(np.array(array)) for name, array in self.sampler.state().items()}}

    def restore_position(self, loader: EpochLoader[Any], state: dict[str, Any]) -> None:
        """Move the loader and the sampler to the position that a checkpoint recorded."""
        super().restore_position(loader, state)
        self.sampler.load_state({name: tensor.numpy() for name, tensor in state["sampler"].items()})

    def val_dataloader(self) -> DataLoader[NodeBatch] | EpochLoader[Any]:
        """Return a loader of this rank's share of the validation split; an empty loader if there is no such split."""
        return self._node_batches(self.data.splits.get("val", np.empty(0, np.int64)))

    def test_dataloader(self) -> DataLoader[NodeBatch] | EpochLoader[Any]:
        """Return a loader of this rank's share of the test split."""
        return self._node_batches(self.data.split("test"))

    def predict_dataloader(self) -> DataLoader[NodeBatch] | EpochLoader[Any]:
        """Return a loader of this rank's share of ``predict_ids``, by default of all nodes."""
        return self._node_batches(self.items_to_predict())

    def every_item(self) -> Array:
        """Return the ids (V,) of all nodes, or of those of the type with labels."""
        return np.arange(self.data.num_seed_nodes)

    def _node_batches(self, nodes: Array) -> DataLoader[NodeBatch] | EpochLoader[Any]:
        """Return a loader of one batch with this rank's contiguous part of ``nodes``. Thus all ranks have the same number of steps.

        With an ``eval_sampler``, return a loader of its mini-batches, in the order of the nodes.
        """
        if self.eval_sampler is not None and len(nodes):
            rank, world_size = self._place
            batch_size = min(self.batch_size, max(1, len(nodes) // world_size))  # each rank needs a batch of a small split
            options: dict[str, Any] = {"batch_size": batch_size, "seed": self.seed, "rank": rank, "world_size": world_size}
            loader: EpochLoader[Any] = SampleLoader(self.data, self.eval_sampler, split=nodes, shuffle=False, **options)
            loader.repeats = True  # every evaluation draws the same neighbours
            return loader
        mine = self.share(nodes)
        y = None if self.data.y is None else torch.from_numpy(np.take(self.data.y, mine, axis=0))
        batches = [NodeBatch(torch.from_numpy(mine.astype(np.int64)), y)] if len(nodes) else []
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def open_data(data: str | Data, load: Callable[..., Data], **options: Any) -> Data:
    """Return a data set given in memory, or open the one with the given name.

    Args:
        data: the data set, or its name.
        load: function that opens a data set by name.
        options: arguments of ``load``; they must have default values for a data set in memory.

    Raises:
        InputError: ``data`` is of another class, an option is given with data in memory, or ``load`` fails.
    """
    if isinstance(data, str):
        return load(data, **options)
    kind: type[Data] = get_type_hints(load)["return"]
    if not isinstance(data, kind):
        remedy = f"convert it with {call}" if (call := _conversion(data, kind)) else "give one of these"
        raise InputError(
            f"the data set is a {type(data).__name__}: it must be the name of a data set or a {kind.__name__} object; {remedy}"
        )
    for name, value in options.items():
        if value != signature(load).parameters[name].default:
            raise InputError(f"{name} is {value} with data in memory: it applies only to a data set opened by name; leave it out")
    return data


def _conversion(data: Any, kind: type[Any]) -> str | None:
    """Return the text of the call that converts an object of PyG, DGL or networkx to a data set, of class ``kind`` if possible.

    Returns None for objects of other libraries.
    """
    classes = {base.__name__: base.__module__.partition(".")[0] for base in type(data).__mro__}
    if "HeteroData" in classes:
        return "HeteroDataset.from_pyg(data)"
    if hasattr(kind, "from_pyg") and (isinstance(data, list) or "torch_geometric" in classes.values()):
        has_many, needs_many = isinstance(data, list) or "Dataset" in classes, kind.__name__ == "SmallGraphs"
        argument = "data" if has_many == needs_many else "[data]" if needs_many else "data[0]"
        return f"{kind.__name__}.from_pyg({argument})"
    library = next((library for library in ("dgl", "networkx") if library in classes.values() and hasattr(kind, f"from_{library}")), None)
    return library and f"{kind.__name__}.from_{library}(data)"


@rank_zero_only
def warn_of_overlaps(name: str, splits: Mapping[str, Array], what: str) -> None:
    """Log a warning if splits of a data set overlap. ``what`` is the word for the examples, such as nodes."""
    present = [split for split in SPLITS if split in splits]
    common = {pair: len(np.intersect1d(splits[pair[0]], splits[pair[1]])) for pair in combinations(present, 2)}
    said = [f"{number:,} {what} are in {one} and {other}" for (one, other), number in common.items() if number]
    if said:
        _log.warning(f"{name}: {'; '.join(said)}: metrics include examples that were trained on; make the splits disjoint")


def share_of(trainer: Trainer) -> tuple[int, int]:
    """Return the index of this process's share of the training data, and the number of shares: by rank, or as the strategy defines."""
    otherwise = {"rank": trainer.global_rank, "num_replicas": trainer.world_size}
    share = getattr(trainer.strategy, "distributed_sampler_kwargs", otherwise)
    return share["rank"], share["num_replicas"]


def _facts(schedule: StepSchedule) -> dict[str, int]:
    """Return the values that determine which examples a batch has, with their names for messages."""
    first, last = schedule.num_step_items(0), schedule.num_step_items(schedule.num_steps - 1)
    return {
        "batch_size": first // schedule.world_size,
        "ranks": schedule.world_size,
        "examples": first * (schedule.num_steps - 1) + last,
        "seed": schedule.seed,
    }


def _sampler_device(device: str, gpu: int | None, num_workers: int) -> str:
    """Return the device to sample on. It includes the index of the training GPU, which workers cannot know.

    Args:
        device: value of the option ``sampler_device``.
        gpu: number of the training GPU; None if training runs elsewhere.
        num_workers: sampler processes of the rank.

    Raises:
        InputError: another GPU is named, but there are no sampler processes to use it.
    """
    if device == "cuda" and gpu is not None:
        return f"cuda:{gpu}"
    if device.startswith("cuda:") and num_workers == 0 and gpu is not None and device != f"cuda:{gpu}":
        raise InputError(
            f"sampler_device is {device} with num_workers 0, and training runs on cuda:{gpu}: only sampler processes can use another GPU; "
            "set num_workers, or give cuda"
        )
    return device


def _balanced(data: Any, sampler: Sampler[Any, Any]) -> Sampler[Any, Any]:
    """Return a sampler whose seeds are drawn equally often from each class.

    Raises:
        InputError: the labels are not classes, or the sampler chooses its seeds itself.
    """
    if not sampler.by_seeds or data.y is None or data.y.ndim != 1 or data.y.dtype.kind == "f":
        reason = "labels that are not classes" if sampler.by_seeds else f"{type(sampler).__name__}, which chooses its seeds itself"
        raise InputError(f"class_balanced_sampling with {reason}: it draws seed nodes by their class; leave it out")
    return WeightedSeedSampler(sampler, class_shares(data.y, data.split("train")))
