"""Base classes of data modules: each rank gets its share of the data, and training resumes where a checkpoint was written."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from inspect import signature
from itertools import combinations
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import LightningDataModule, Trainer
from pytorch_lightning.trainer.states import TrainerStatus
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS
from hoptrain.engine.machine import keep_freed_memory
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers import SampleLoader, Sampler, WeightedSeedSampler
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.wrappers.weighted import class_shares
from hoptrain.trainers.resume.checkpoints import keep_checkpoints_whole
from hoptrain.trainers.resume.exact_resume import ExactResume
from hoptrain.trainers.tasks.options import check_share

_log = logging.getLogger(__name__)
Data = TypeVar("Data")


class SharedDataModule(LightningDataModule):
    """Attributes: ``data``; ``loader``, that of the training once it was asked for; ``seed`` of the order, by default that of seed_everything."""

    data: Any
    _is_partitioned = False

    def __init__(self, batch_size: int, seed: int | None) -> None:
        """Take the examples per rank and step, and the seed."""
        super().__init__()
        self.batch_size = batch_size
        self.seed: int = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.loader: EpochLoader[Any] | None = None
        self._resume_from: dict[str, Any] | None = None

    def __str__(self) -> str:
        """Short: Lightning's would draw a batch from every loader."""
        return f"{type(self).__name__}(batch_size={self.batch_size}, seed={self.seed})"

    @property
    def trainer(self) -> Trainer | None:
        """Lightning's trainer, which sets it when a run begins, before its ranks meet: so this is where those of a custom script are checked.

        Raises:
            InputError: as ``meet``, where it is set.
        """
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        self._trainer = trainer
        if isinstance(trainer, Trainer):  # whose default would shard each rank's share of an evaluation once more
            trainer._accelerator_connector.use_distributed_sampler = False
        if isinstance(trainer, Trainer) and trainer.state.status == TrainerStatus.RUNNING and trainer.world_size > 1:
            from hoptrain.trainers.callbacks.roll_call import meet

            self._met = meet(trainer, calls_roll=self._is_partitioned)  # kept until the process group has it

    @abstractmethod
    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """The training loader of a rank; in a pipeline of a copy of the model, for this process's stage.

        Nothing is started by it, so it also serves to check the sizes before a run.
        """

    def of_strategy(self, name: str, otherwise: Any) -> Any:
        """What the trainer's strategy has of that name: a pipeline has loaders and limits of its own."""
        return getattr(getattr(self.trainer, "strategy", None), name, otherwise)

    def setup(self, stage: str) -> None:
        """Attach what completes checkpoints; before the other callbacks, which may write some. A CPU that computes keeps its memory."""
        trainer: Any = self.trainer
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
        """This rank's share of the training split."""
        trainer: Any = self.trainer
        if trainer is None:
            return self.make_loader(0, 1, self.seed)
        if self.loader is not None:
            self.loader.close()
        # Ranks that drew different seeds would train on overlapping shares; rank 0's is taken by all.
        self.loader = self.make_loader(*share_of(trainer), trainer.strategy.broadcast(self.seed))
        self.loader.repeats = trainer.overfit_batches > 0
        if self._resume_from is not None:
            self.go_on(self.loader, self._resume_from)
            self._resume_from = None
        return self.loader

    def go_on(self, loader: EpochLoader[Any], state: dict[str, Any]) -> None:
        """Let the loader go on where the checkpoint was written.

        Raises:
            InputError: in the middle of an epoch that is cut into other batches here.
        """
        theirs, ours = state["schedule"], _facts(loader.schedule)
        different = [f"{name} {theirs[name]} ({ours[name]} here)" for name in ours if theirs[name] != ours[name]]
        if different and state["step"] and not state["ended"]:
            raise InputError(
                f"the checkpoint stands behind batch {state['step']} of epoch {state['epoch']}, which was cut otherwise: {', '.join(different)}; "
                "go on with the same, or from a checkpoint of an epoch's end"
            )
        loader.load_state_dict({"epoch": state["epoch"], "step": len(loader) if state["ended"] else state["step"]})

    def state_dict(self) -> dict[str, Any]:
        """Where the training is, for the checkpoint: behind the last batch that was trained on."""
        if self.loader is None or self._resume is None or self.trainer is None:
            return {}
        place = self._resume.place(self.trainer)
        return {"epoch": place.epoch, "step": place.step, "ended": place.ended, "schedule": _facts(self.loader.schedule)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the training loader continue from a checkpoint."""
        self._resume_from = state_dict or None

    def teardown(self, stage: str) -> None:
        """End the sampler processes, if there are any."""
        if self.loader is not None:
            self.loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """End them also where Lightning does not get as far as ``teardown``."""
        self.teardown("")

    @property
    def num_classes(self) -> int:
        """C."""
        num_classes: int = self.data.num_classes
        return num_classes

    @property
    def world_size(self) -> int:
        """Ranks among which evaluation is shared out; for prediction in a pipeline copies of the model, through whose stages a share goes."""
        return self._place[1]

    @property
    def _place(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return share_of(self.trainer) if self.trainer.predicting else (self.trainer.global_rank, self.trainer.world_size)

    def share(self, items: Array) -> Array:
        """This rank's contiguous part of ``items`` (N,), for evaluation."""
        return np.array_split(items, self.world_size)[self._place[0]]


class NodeBatch(NamedTuple):
    """A rank's share of the nodes to evaluate from full neighbourhoods: validation, test and predict loaders give one such batch a rank.

    Attributes:
        node_ids: (N,) int64 global ids.
        y: (N,) or (N, C) labels, or None.
    """

    node_ids: Tensor
    y: Tensor | None


class SampledDataModule(SharedDataModule):
    """A data module that feeds training from sampler processes, and evaluation with the ids of nodes.

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
    ) -> None:
        """Take an open data set and its sampler.

        Args:
            data: the data set.
            sampler: the sampling algorithm.
            batch_size: seeds per rank and step.
            num_workers: sampler processes per rank, by default 2; 0, the default with sampler_device cuda, samples in the training process.
            seed: seed of the order and of the samples; by default that of seed_everything.
            worker_options: how batches come from the sampler processes.
            sampler_device: where batches are sampled, cpu or cuda: with num_workers=0 on the training GPU, beside the training; with more in
                processes that share the GPU, or with cuda:1 have another one.
            bulk: batches sampled at once on cuda with num_workers=0; by default as many as have 8,192 seeds together, from 2 to 64.
            graph_placement: where the sampler on cuda reads the graph: device memory, pinned host memory, or auto, by what is free.
            feature_placement: where features are gathered from with sampler_device cuda and num_workers 0: device, pinned or auto.
            gpu_cache: what each GPU keeps of features in pinned memory, the rows that are read most: bytes such as 2GiB, or a share such as 0.1.
            cuda_graphs: with sampler_device cuda whether a bulk of a shape that there was before is queued by one call, a CUDA graph.
            feature_cache: bytes such as 8GiB that each machine spends on features which are read from the disk, or auto for what is left there.
            prefetch_steps: with memory, steps ahead whose rows are known; by default 256.
            class_balanced_sampling: draw an epoch's seeds with replacement so that every class of the training split comes as often (``WeightedSeedSampler``).
        """
        super().__init__(batch_size, seed)
        self.data: Any = data
        self.sampler: Sampler[Any, Any] = _balanced(data, sampler) if class_balanced_sampling else sampler
        self.num_workers: int = num_workers if num_workers is not None else 0 if sampler_device == "cuda" else 2
        places = {"graph_placement": graph_placement, "feature_placement": feature_placement, "gpu_cache": gpu_cache}
        self._feed_options: dict[str, Any] = {
            "worker_options": worker_options,
            "device": sampler_device,
            "bulk": bulk,
            "cuda_graphs": cuda_graphs,
            **places,
        }
        self._feed_options |= {"feature_cache": feature_cache, "prefetch_steps": prefetch_steps}

    @property
    def num_hops(self) -> int:
        """Hops of a mini-batch."""
        return self.sampler.num_hops

    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """Return the training loader of a rank. Where batches are copied to a GPU, the workers' memory is pinned."""
        device = None if self.trainer is None else self.trainer.strategy.root_device
        gpu = device.index if device is not None and device.type == "cuda" else None
        pin_memory = self.num_workers > 0 and gpu is not None
        options: dict[str, Any] = {"batch_size": self.batch_size, "num_workers": self.num_workers, "seed": seed, "pin_memory": pin_memory}
        options |= {"rank": rank, "world_size": world_size} | self._feed_options
        options["device"] = _sampler_device(options["device"], gpu, self.num_workers)
        loader: EpochLoader[Any] = self.of_strategy("make_loader", SampleLoader)(self.data, self.sampler, **options)
        return loader

    def state_dict(self) -> dict[str, Any]:
        """Return the training's position for a checkpoint, and the sampler's state."""
        state = super().state_dict()
        return state and state | {"sampler": {name: torch.from_numpy(np.array(array)) for name, array in self.sampler.state().items()}}

    def go_on(self, loader: EpochLoader[Any], state: dict[str, Any]) -> None:
        """Let the loader and the sampler resume from the checkpoint."""
        super().go_on(loader, state)
        self.sampler.load_state({name: tensor.numpy() for name, tensor in state["sampler"].items()})

    def val_dataloader(self) -> DataLoader[NodeBatch]:
        """Return this rank's share of the validation split; nothing if there is none."""
        return self._node_batches(self.data.splits.get("val", np.empty(0, np.int64)))

    def test_dataloader(self) -> DataLoader[NodeBatch]:
        """Return this rank's share of the test split."""
        return self._node_batches(self.data.split("test"))

    def predict_dataloader(self) -> DataLoader[NodeBatch]:
        """Return this rank's share of all nodes."""
        return self._node_batches(np.arange(self.data.num_seed_nodes))

    def _node_batches(self, nodes: Array) -> DataLoader[NodeBatch]:
        """Return one batch for each rank, so that all make the same number of steps; contiguous shares, in order."""
        mine = self.share(nodes)
        y = None if self.data.y is None else torch.from_numpy(np.take(self.data.y, mine, axis=0))
        batches = [NodeBatch(torch.from_numpy(mine.astype(np.int64)), y)] if len(nodes) else []
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def opened(data: str | Data, load: Callable[..., Data], **options: Any) -> Data:
    """What a data module is given: data in memory as they are, or those that ``load`` opens by their name.

    Args:
        data: the data, or their name.
        load: opens them.
        options: of ``load``; data in memory have none.

    Raises:
        InputError: data of another kind, an option with data in memory; as ``load``.
    """
    if isinstance(data, str):
        return load(data, **options)
    kind: type[Data] = get_type_hints(load)["return"]
    if not isinstance(data, kind):
        is_pyg = hasattr(kind, "from_pyg") and (hasattr(data, "edge_index") or isinstance(data, list))
        remedy = f"{kind.__name__}.from_pyg(data) makes one" if is_pyg else "make one"
        raise InputError(f"the data are a {type(data).__name__}: give a name, or a {kind.__name__} in memory; {remedy}")
    for name, value in options.items():
        if value != signature(load).parameters[name].default:
            raise InputError(f"{name} is {value} with data in memory: it tells how a name is opened; leave it out")
    return data


@rank_zero_only
def say_overlaps(name: str, splits: Mapping[str, Array], what: str) -> None:
    """Say in a line which of a data set's splits, of nodes or another ``what``, have some in common: these are judged after they were learnt."""
    present = [split for split in SPLITS if split in splits]
    common = {pair: len(np.intersect1d(splits[pair[0]], splits[pair[1]])) for pair in combinations(present, 2)}
    said = [f"{number:,} {what} are in {one} and {other}" for (one, other), number in common.items() if number]
    if said:
        _log.warning(f"{name}: {'; '.join(said)}: scores tell of what was learnt; correct the splits, if that is not meant")


def share_of(trainer: Trainer) -> tuple[int, int]:
    """Which share of the training data this process has, and of how many: its rank's, unless the strategy knows better, as a pipeline does."""
    otherwise = {"rank": trainer.global_rank, "num_replicas": trainer.world_size}
    share = getattr(trainer.strategy, "distributed_sampler_kwargs", otherwise)
    return share["rank"], share["num_replicas"]


def _facts(schedule: StepSchedule) -> dict[str, int]:
    """Return what decides which examples a batch has, by its name for people."""
    first, last = schedule.num_step_items(0), schedule.num_step_items(schedule.num_steps - 1)
    return {
        "batch_size": first // schedule.world_size,
        "ranks": schedule.world_size,
        "examples": first * (schedule.num_steps - 1) + last,
        "seed": schedule.seed,
    }


def _sampler_device(device: str, gpu: int | None, num_workers: int) -> str:
    """Return the device to sample on, with the number of the training's GPU, which neither this process before the run nor its workers know.

    Args:
        device: value of the option ``sampler_device``.
        gpu: number of the training's GPU; None if it has none.
        num_workers: sampler processes of the rank.

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
    """Return the sampler with seeds drawn by class.

    Raises:
        InputError: labels that are no classes, or a sampler that chooses its seeds itself.
    """
    if not sampler.by_seeds or data.y is None or data.y.ndim != 1 or data.y.dtype.kind == "f":
        reason = "labels that are no classes" if sampler.by_seeds else f"{type(sampler).__name__}, which says itself what a batch is about"
        raise InputError(f"balanced with {reason}: it draws nodes by their class; leave it out")
    return WeightedSeedSampler(sampler, class_shares(data.y, data.split("train")))
