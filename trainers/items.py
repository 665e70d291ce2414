"""Batches of independent items (images, small graphs, vertices with all that they need): nothing has to be sampled for them.

The order and the shares of the ranks are those of ``engine/schedule.py``, so what it promises holds here too: equal steps on every rank, each
item of an epoch in one batch of one rank, the same batches after a run is resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.schedule import Schedule
from hoptrain.trainers.pipeline.strategy import PipelineStrategy, share_of


class Address(NamedTuple):
    """What all random numbers of a batch are made from: the user's seed, the epoch, the batch's number in it over all ranks."""

    seed: int
    epoch: int
    batch: int


class ItemBatch(NamedTuple):
    """B items.

    Attributes:
        x: what the model takes: a tensor, or a tuple of them.
        y: (B,) int64 classes.
        num_step_items: items of this step over all ranks.
        address: of the batch; None where it is not for training.
    """

    x: Any
    y: Tensor
    num_step_items: int
    address: Address | None = None


Collate = Callable[[Array, Address | None], tuple[Any, Tensor]]
"""(item numbers (B,), address) to what the model takes and the classes."""


class ItemLoader:
    """This rank's batches of one epoch after the other. Its state is where the next batch is, as that of ``SampleLoader``."""

    def __init__(self, schedule: Schedule, collate: Collate) -> None:
        self.schedule = schedule
        self._collate = collate
        self._start = self._position = (0, 0)  # epoch and step

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.schedule.num_steps

    def __iter__(self) -> Iterator[ItemBatch]:
        """The rest of the epoch that was loaded, else the next."""
        epoch, first = self._start
        self._start = (epoch + 1, 0)
        return self._run(epoch, first)

    def _run(self, epoch: int, first: int) -> Iterator[ItemBatch]:
        for step in range(first, len(self)):
            address = Address(self.schedule.seed, epoch, self.schedule.batch_number(step))
            x, y = self._collate(self.schedule.batch_seeds(epoch, step), address)
            self._position = (epoch, step + 1) if step + 1 < len(self) else (epoch + 1, 0)
            yield ItemBatch(x, y, self.schedule.num_step_seeds(step), address)

    def state_dict(self) -> dict[str, int]:
        """Epoch and step of the next batch."""
        return {"epoch": self._position[0], "step": self._position[1]}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from ``state_dict``."""
        self._start = self._position = (state["epoch"], state["step"])


class Items(Protocol):
    """What a data module is given by: labelled items with splits. ``Dataset`` is one too."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def splits(self) -> Mapping[str, Array]:
        """Item numbers by split."""


class ItemDataModule(LightningDataModule):
    """Feeds a task on items; a subclass opens the data and defines ``collate``.

    Evaluation runs over batches of each rank's contiguous share; every rank makes the same number of steps, the last may be empty.
    """

    is_multilabel = False

    def __init__(self, data: Items, batch_size: int, seed: int | None) -> None:
        super().__init__()
        self.data = data
        self.batch_size = batch_size
        self.seed = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.loader: ItemLoader | None = None
        self._resume_at: dict[str, int] | None = None

    def collate(self, items: Array, address: Address | None) -> tuple[Any, Tensor]:
        """What the model takes of ``items`` (B,), and their classes (B,) int64; ``address`` is None outside training."""
        raise NotImplementedError

    def make_loader(self, rank: int, world_size: int, seed: int) -> ItemLoader:
        """The training loader of a rank, in a pipeline of a copy of the model; it also serves to check the sizes before a run."""
        schedule = Schedule(seeds=self._split("train"), batch_size=self.batch_size, rank=rank, world_size=world_size, seed=seed)
        if self.trainer is not None and isinstance(self.trainer.strategy, PipelineStrategy):
            _check_chunks(schedule, self.trainer.strategy)
        return ItemLoader(schedule, self.collate)

    def train_dataloader(self) -> ItemLoader:
        """This rank's share of the training split."""
        if self.trainer is None:
            return self.make_loader(0, 1, self.seed)
        self.loader = self.make_loader(*share_of(self.trainer), self.trainer.strategy.broadcast(self.seed))
        if self._resume_at is not None:
            self.loader.load_state_dict(self._resume_at)
        return self.loader

    def state_dict(self) -> dict[str, int]:
        """Where the training loader is, for the checkpoint."""
        return {} if self.loader is None else self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Let the training loader continue from a checkpoint."""
        self._resume_at = state_dict or None

    def val_dataloader(self) -> DataLoader[ItemBatch]:
        """This rank's share of the validation split; nothing if there is none."""
        return self._in_order(self.data.splits.get("val", np.empty(0, np.int64)))

    def test_dataloader(self) -> DataLoader[ItemBatch]:
        """This rank's share of the test split."""
        return self._in_order(self._split("test"))

    def predict_dataloader(self) -> DataLoader[ItemBatch]:
        """This rank's share of all items, in order."""
        return self._in_order(self.every_item())

    def every_item(self) -> Array:
        """The numbers of all items, (N,)."""
        return np.sort(np.concatenate(list(self.data.splits.values())))

    def _split(self, name: str) -> Array:
        if not len(self.data.splits.get(name, ())):
            raise InputError(f"{self.data.name} has no {name} items: its splits are {', '.join(self.data.splits)}; choose another data set")
        return self.data.splits[name]

    def _rank_and_world_size(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _in_order(self, items: Array) -> DataLoader[ItemBatch]:
        rank, world_size = self._rank_and_world_size()
        mine = np.array_split(items, world_size)[rank]
        steps = -(-len(items) // (world_size * self.batch_size))
        batches = _Batches(np.array_split(mine, steps) if steps else [], self.collate)
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def _check_chunks(schedule: Schedule, strategy: PipelineStrategy) -> None:
    """Refuse what items cannot be cut into."""
    if strategy.chunking == "by-index":
        raise InputError("chunking by-index for items: they have no edges between them that it could lose; use chunking seeds")
    fewest = min(schedule.num_step_seeds(step) // schedule.world_size for step in (0, schedule.num_steps - 1))
    if strategy.plan.chunks > fewest:
        raise InputError(
            f"{strategy.plan.chunks} chunks of a batch of {fewest} items: every chunk needs one; use at most {fewest} chunks or larger batches"
        )


class _Batches:
    """Evaluation's batches by number."""

    def __init__(self, shares: list[Array], collate: Collate) -> None:
        self._shares, self._collate = shares, collate

    def __len__(self) -> int:
        return len(self._shares)

    def __getitem__(self, number: int) -> ItemBatch:
        x, y = self._collate(self._shares[number], None)
        return ItemBatch(x, y, len(y))
