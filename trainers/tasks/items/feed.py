"""Batches of independent items (images, small graphs, nodes with all that they need): nothing has to be sampled for them.

The order and the shares of the ranks are those of ``engine/schedule.py``, so what it promises holds here too: equal steps on every rank, each
item of an epoch in one batch of one rank, the same batches after a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.schedule import Schedule
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.loader.items import ItemTask
from hoptrain.trainers.tasks.shared_data import SharedDataModule, say_overlaps


class ItemBatch(NamedTuple):
    """B items.

    Attributes:
        x: what the model takes: a tensor, or a tuple of them.
        y: (B,) int64 classes, or labels or targets as ``SmallGraphs`` has them.
        num_step_items: items of this step over all ranks.
        address: of the batch; None where it is not for training.
    """

    x: Any
    y: Tensor
    num_step_items: int
    address: Address | None = None

    @property
    def num_edges(self) -> int:
        """None is sampled."""
        return 0


Collate = Callable[[Array, Address | None], tuple[Any, Tensor]]
"""(item numbers (B,), address) to what the model takes and the classes."""
Joined = tuple[Callable[[Array], dict[str, Array]], Callable[[dict[str, Array]], tuple[Any, Tensor]]]
"""``ItemTask.join``, and what makes of its arrays what ``Collate`` gives."""


class ItemLoader(EpochLoader[ItemBatch]):
    """This rank's batches, made in this process, or put together by worker processes; see ``EpochLoader``."""

    def __init__(
        self,
        schedule: Schedule,
        collate: Collate,
        joined: Joined | None = None,
        num_workers: int = 0,
        worker_options: WorkerOptions = DEFAULTS,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            schedule: what is in which batch.
            collate: makes a batch here.
            joined: with workers what these do, and what makes tensors of it here.
            num_workers: processes of this rank.
            worker_options: how batches come from them.

        Raises:
            InputError: workers of which there are none, or that nothing was written for; options of a queue without workers.
        """
        if num_workers < 0 or (num_workers and joined is None):
            raise InputError(f"num_workers is {num_workers}: it is at least 0, and 0 where batches are made in this process; correct it")
        if not num_workers and worker_options != DEFAULTS:
            raise InputError("queue with num_workers 0: without workers there is no queue; leave it out")
        super().__init__(schedule, num_workers)
        self._collate, self._joined, self._queue = collate, joined, worker_options

    def _run(self, epoch: int, steps: range) -> Iterator[ItemBatch]:
        made = self._made(epoch, steps)
        for step in steps:
            yield ItemBatch(*next(made), self.schedule.num_step_items(step), self.schedule.address(epoch, step))

    def _made(self, epoch: int, steps: range) -> Iterator[tuple[Any, Tensor]]:
        if not self.num_workers or self._joined is None:
            return (self._collate(self.schedule.batch_items(epoch, step), self.schedule.address(epoch, step)) for step in steps)
        join, tensors = self._joined
        if self._pool is None:
            task = ItemTask(join, self.schedule)
            self._pool = WorkerPool(task, self.num_workers, self._queue, batch_bytes=task.num_bytes(epoch))
        return (tensors(made[0]) for made in self._pool.run(epoch, steps))


class Items(Protocol):
    """What a data module is given by: labelled items with splits. ``Dataset`` is one too."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def splits(self) -> Mapping[str, Array]:
        """Item numbers by split."""


class ItemDataModule(SharedDataModule):
    """Feeds a task on items; a subclass opens the data and defines ``collate``, and ``joined`` where worker processes can do it.

    Evaluation runs over batches of each rank's contiguous share; every rank makes the same number of steps, the last may be empty.
    """

    joined: Joined | None = None

    def __init__(
        self, data: Items, batch_size: int, seed: int | None, num_workers: int = 0, worker_options: WorkerOptions = DEFAULTS
    ) -> None:
        super().__init__(batch_size, seed)
        self.data: Any = data
        self.num_workers: int = num_workers
        self.worker_options: WorkerOptions = worker_options
        say_overlaps(data.name, data.splits, "items")

    def collate(self, items: Array, address: Address | None) -> tuple[Any, Tensor]:
        """What the model takes of ``items`` (B,), and their classes (B,) int64; ``address`` is None outside training."""
        raise NotImplementedError

    def make_loader(self, rank: int, world_size: int, seed: int) -> ItemLoader:
        """The training loader of a rank, in a pipeline of a copy of the model; it also serves to check the sizes before a run."""
        schedule = Schedule(items=self._split("train"), batch_size=self.batch_size, rank=rank, world_size=world_size, seed=seed)
        if (check := self.of_strategy("check_items", None)) is not None:
            check(schedule)
        return ItemLoader(schedule, self.collate, self.joined, self.num_workers, self.worker_options)

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
        splits: Mapping[str, Array] = self.data.splits
        if not len(splits.get(name, ())):
            raise InputError(f"{self.data.name} has no {name} items: its splits are {', '.join(splits)}; choose another data set")
        return splits[name]

    def _in_order(self, items: Array) -> DataLoader[ItemBatch]:
        mine = self.share(items)
        steps = -(-len(items) // (self.world_size * self.batch_size))
        batches = _Batches(np.array_split(mine, steps) if steps else [], self.collate)
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class _Batches:
    """Evaluation's batches by number."""

    def __init__(self, shares: list[Array], collate: Collate) -> None:
        self._shares, self._collate = shares, collate

    def __len__(self) -> int:
        return len(self._shares)

    def __getitem__(self, number: int) -> ItemBatch:
        x, y = self._collate(self._shares[number], None)
        return ItemBatch(x, y, len(y))
