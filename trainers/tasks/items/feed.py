"""Data loading for independent items (images, small graphs, nodes with precomputed features), which need no sampling.

``engine/schedule.py`` decides the order of items and their assignment to ranks. It guarantees that every rank makes the same number of steps, that each
item of an epoch is in one batch of one rank, and that a resumed run gets the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.schedule import Schedule
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.loader.items import ItemTask
from hoptrain.samplers.loader.maker import BatchHooks, BatchMaker
from hoptrain.trainers.tasks.shared_data import SharedDataModule, warn_of_overlaps


class ItemBatch(NamedTuple):
    """A batch of B items.

    Attributes:
        x: input of the model: a tensor, or a tuple of tensors.
        y: classes (B,) int64, or labels or targets in the layout of ``SmallGraphs``.
        num_step_items: number of items of this step over all ranks.
        address: address of a training batch; None in evaluation.
        seeds: ids (B,) int64 of the items in evaluation; None in training.
    """

    x: Any
    y: Tensor
    num_step_items: int
    address: Address | None = None
    seeds: Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Number of sampled edges: 0, since items have none. ``ThroughputMonitor`` reads it."""
        return 0


Collate = Callable[[Array, Address | None], tuple[Any, Tensor]]
"""A function that maps item indices (B,) and the batch's address (None in evaluation) to the model's input and the labels."""
Joined = tuple[Callable[[Array], dict[str, Array]], Callable[[dict[str, Array]], tuple[Any, Tensor]]]
"""Two functions, which together replace ``Collate``: workers call the first, ``ItemTask.join``, and the trainer converts its arrays by the second."""


class ItemLoader(EpochLoader[ItemBatch]):
    """A loader of this rank's batches, which this process or worker processes assemble; see ``EpochLoader``."""

    def __init__(
        self,
        schedule: Schedule,
        collate: Collate,
        joined: Joined | None = None,
        num_workers: int = 0,
        worker_options: WorkerOptions = DEFAULTS,
    ) -> None:
        """Set up the loader; it starts no processes yet.

        Args:
            schedule: the items of each batch.
            collate: function that makes a batch in this process.
            joined: with workers, two functions: the one that workers call to build a batch of arrays, and the one that converts these to tensors.
            num_workers: number of worker processes of this rank.
            worker_options: options of the queue from the workers.

        Raises:
            InputError: ``num_workers`` is negative or the data module does not support workers, or queue options are given without workers.
        """
        if num_workers < 0 or (num_workers and joined is None):
            raise InputError(
                f"num_workers is {num_workers}: it must be at least 0, and 0 for a data module that makes batches in this process; give 0"
            )
        if not num_workers and worker_options != DEFAULTS:
            raise InputError("worker_options with num_workers 0: they apply only to workers; leave worker_options out")
        super().__init__(schedule, num_workers)
        self._collate, self._joined, self._queue = collate, joined if num_workers else None, worker_options

    def _run(self, epoch: int, steps: range) -> Iterator[ItemBatch]:
        if self._joined is None:
            made = (self._collate(self.schedule.batch_items(epoch, step), self.schedule.address(epoch, step)) for step in steps)
        else:
            join, to_tensors = self._joined
            if self._maker is None:
                self._maker = BatchMaker(ItemTask(join, self.schedule), num_workers=self.num_workers, worker_options=self._queue)
            made = self._maker.run(epoch, steps, BatchHooks(lambda batch: to_tensors(batch[0])))
        for step in steps:
            yield ItemBatch(*next(made), self.schedule.num_step_items(step), self.schedule.address(epoch, step))


class Items(Protocol):
    """A protocol of data for an ``ItemDataModule``: labelled items with splits. ``Dataset`` implements it."""

    @property
    def name(self) -> str:
        """Name of the data, for messages."""

    @property
    def splits(self) -> Mapping[str, Array]:
        """Indices of the items of each split."""


class ItemDataModule(SharedDataModule):
    """A base data module for independent items. A subclass opens the data and defines ``collate``, and ``joined`` if workers can make its batches.

    In evaluation, each rank gets a contiguous part of the items. Every rank makes the same number of steps, so its last batch may be empty.
    """

    joined: Joined | None = None

    def __init__(
        self, data: Items, batch_size: int, seed: int | None, num_workers: int = 0, worker_options: WorkerOptions = DEFAULTS
    ) -> None:
        super().__init__(batch_size, seed)
        self.data: Any = data
        self.num_workers: int = num_workers
        self.worker_options: WorkerOptions = worker_options
        warn_of_overlaps(data.name, data.splits, "items")

    def collate(self, items: Array, address: Address | None) -> tuple[Any, Tensor]:
        """Return the model's input for ``items`` (B,), and their labels. ``address`` is that of the training batch, or None in evaluation."""
        raise NotImplementedError

    def make_loader(self, rank: int, world_size: int, seed: int) -> ItemLoader:
        """Return the training loader of a rank, or of a model replica in a pipeline. It starts no processes, so it can also be used to check sizes."""
        schedule = Schedule(items=self._split("train"), batch_size=self.batch_size, rank=rank, world_size=world_size, seed=seed)
        if (check := self.from_strategy("check_items", None)) is not None:
            check(schedule)
        return ItemLoader(schedule, self.collate, self.joined, self.num_workers, self.worker_options)

    def val_dataloader(self) -> DataLoader[ItemBatch]:
        """Return a loader of this rank's share of the validation split; an empty loader if there is no such split."""
        return self._in_order(self.data.splits.get("val", np.empty(0, np.int64)))

    def test_dataloader(self) -> DataLoader[ItemBatch]:
        """Return a loader of this rank's share of the test split."""
        return self._in_order(self._split("test"))

    def predict_dataloader(self) -> DataLoader[ItemBatch]:
        """Return a loader of this rank's share of ``predict_ids``, by default of all items, in order."""
        return self._in_order(self.items_to_predict())

    def every_item(self) -> Array:
        """Return the indices (N,) of all items."""
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
    """A sequence that collates an evaluation batch when it is indexed."""

    def __init__(self, shares: list[Array], collate: Collate) -> None:
        self._shares, self._collate = shares, collate

    def __len__(self) -> int:
        return len(self._shares)

    def __getitem__(self, number: int) -> ItemBatch:
        x, y = self._collate(self._shares[number], None)
        return ItemBatch(x, y, len(y), seeds=torch.from_numpy(np.array(self._shares[number])))
