"""What all data modules share: each rank has its part of the data, and training goes on where a checkpoint left it."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

import numpy as np
from pytorch_lightning import LightningDataModule

from hoptrain.engine.arrays import Array
from hoptrain.samplers.epochs import EpochLoader
from hoptrain.trainers.pipeline.strategy import share_of


class SharedDataModule(LightningDataModule):
    """Attributes: ``loader``, that of the training once it was asked for; ``seed`` of the order, by default that of seed_everything."""

    def __init__(self, batch_size: int, seed: int | None) -> None:
        """Take the examples per rank and step, and the seed."""
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.loader: EpochLoader[Any] | None = None
        self._resume_at: dict[str, int] | None = None

    @abstractmethod
    def make_loader(self, rank: int, world_size: int, seed: int) -> EpochLoader[Any]:
        """The training loader of a rank; in a pipeline of a copy of the model, for this process's stage.

        Nothing is started by it, so it also serves to check the sizes before a run.
        """

    def train_dataloader(self) -> EpochLoader[Any]:
        """This rank's share of the training split."""
        if self.trainer is None:
            return self.make_loader(0, 1, self.seed)
        # Ranks that drew different seeds would train on overlapping shares; rank 0's is taken by all.
        self.loader = self.make_loader(*share_of(self.trainer), self.trainer.strategy.broadcast(self.seed))
        if self._resume_at is not None:
            self.loader.load_state_dict(self._resume_at)
        return self.loader

    def state_dict(self) -> dict[str, int]:
        """Where the training loader is, for the checkpoint. Lightning restores a loader's own state in mid-epoch only."""
        return {} if self.loader is None else self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Let the training loader continue from a checkpoint."""
        self._resume_at = state_dict or None

    def teardown(self, stage: str) -> None:
        """End the sampler processes, if there are any."""
        if self.loader is not None:
            self.loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """End them also where Lightning does not get as far as ``teardown``."""
        self.teardown("")

    @property
    def world_size(self) -> int:
        """Ranks among which evaluation is shared out."""
        return 1 if self.trainer is None else self.trainer.world_size

    def share(self, items: Array) -> Array:
        """This rank's contiguous part of ``items`` (N,), for evaluation."""
        rank = 0 if self.trainer is None else self.trainer.global_rank
        return np.array_split(items, self.world_size)[rank]
