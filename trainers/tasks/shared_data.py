"""What all data modules share: each rank has its part of the data, and training goes on where a checkpoint left it."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from inspect import signature
from itertools import combinations
from typing import Any, TypeVar, get_type_hints

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import LightningDataModule, Trainer
from pytorch_lightning.trainer.states import TrainerStatus

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS
from hoptrain.engine.machine import keep_freed_memory
from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers.feed.epochs import EpochLoader
from hoptrain.trainers.resume.checkpoints import keep_checkpoints_whole
from hoptrain.trainers.resume.exact_resume import ExactResume
from hoptrain.trainers.tasks.options import check_share

_log = logging.getLogger(__name__)
Data = TypeVar("Data")


class SharedDataModule(LightningDataModule):
    """Attributes: ``data``; ``loader``, that of the training once it was asked for; ``seed`` of the order, by default that of seed_everything."""

    data: Any
    _is_parted = False

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
            from hoptrain.trainers.runs.roll_call import meet

            self._met = meet(trainer, calls_roll=self._is_parted)  # kept until the process group has it

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
    """Say in a line which of a data set's splits, of vertices or another ``what``, have some in common: these are judged after they were learnt."""
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
