"""The data of a run on events: dealt out in the order of time, sampled by worker processes, for training and for everything else."""

from __future__ import annotations

import torch

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.events import Events, load_events
from hoptrain.engine.queue.options import DEFAULTS, QueueOptions
from hoptrain.samplers import MiniBatch, SampleLoader
from hoptrain.samplers.seeds.events import EventSampler, EventSchedule
from hoptrain.trainers.models.tgn import EventTensors
from hoptrain.trainers.tasks.shared_data import SharedDataModule, opened, share_of


class EventDataModule(SharedDataModule):
    """Feeds training, validation and test with their events in the order of time.

    Each rank has a contiguous part of every step's events; neighbours are those from before the step.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import EventDataModule, Events
        >>> events = Events(src=np.arange(60) % 7, dst=7 + np.arange(60) % 5, t=np.arange(60))
        >>> data = EventDataModule(events, num_neighbors=3, batch_size=20, num_workers=0, seed=1)
        >>> len(data.train_dataloader())  # 42 events, 20 a step; 9 are for validation, 9 for the test
        3
    """

    data: Events

    def __init__(
        self,
        events: str | Events,
        root: str | None = None,
        val_share: float | None = None,
        test_share: float | None = None,
        num_neighbors: int = 10,
        num_negatives: int = 100,
        batch_size: int = 200,
        num_workers: int = 2,
        shuffle: bool = False,
        seed: int | None = None,
        queue: QueueOptions = DEFAULTS,
    ) -> None:
        """Open the events and divide them.

        Args:
            events: name of a .npz file with src, dst and t, or in Python ``Events``.
            root: folder of the file; by default $HOPTRAIN_DATA.
            val_share: part of the events for validation, the latest but those of the test; by default 0.15, or what the data say.
            test_share: part of the events for the test, the latest; by default likewise.
            num_neighbors: latest events of a vertex that it is looked at by.
            num_negatives: of each event in validation and test; in training it is one.
            batch_size: events per rank and step.
            num_workers: sampler processes per rank for training; 0 samples in the training process.
            shuffle: has to be false, since a memory takes events in as they came.
            seed: of the negatives; by default that of seed_everything.
            queue: how batches come from the sampler processes.

        Raises:
            InputError: events that are none, shares beside ends of the data's own, shuffling; as ``Events.divided``.
        """
        if shuffle:
            raise InputError("shuffle is True: events are dealt out in the order of time, as the memory takes them in; leave it out")
        super().__init__(batch_size, seed)
        data = opened(events, load_events, root=root)
        if data.ends is None:
            data = data.divided(0.15 if val_share is None else val_share, 0.15 if test_share is None else test_share)
        elif val_share is not None or test_share is not None:
            raise InputError(f"val_share is {val_share} and test_share {test_share}: {data.name} says its ends itself; leave them out")
        self.data = data
        self.num_workers: int = num_workers
        self.num_negatives: int = num_negatives
        self._queue = queue
        self._graph = Dataset(graph=data.graph(), name=data.name, validate=False)
        self._samplers = {name: EventSampler(data, num_neighbors, 1 if name == "train" else num_negatives) for name in data.splits}

    @property
    def num_nodes(self) -> int:
        """V."""
        return self.data.num_nodes

    @property
    def message_channels(self) -> int:
        """D, at least 1: PyG's memory has no messages without a number."""
        return max(1, self.data.message_channels)

    @property
    def step_size(self) -> int:
        """Events of a step over all ranks."""
        return self.batch_size * self.world_size

    def tensors(self, device: torch.device) -> EventTensors:
        """All events, for a memory; messages that are not there are a zero."""
        messages = self.data.messages
        src, dst, t = (torch.from_numpy(column).to(device) for column in (self.data.src, self.data.dst, self.data.t))
        rows = torch.zeros(len(t), 1) if messages is None else torch.from_numpy(messages)
        return EventTensors(src, dst, t, rows.to(device))

    def make_loader(self, rank: int, world_size: int, seed: int) -> SampleLoader[MiniBatch]:
        """See ``SharedDataModule``."""
        return self._loader("train", rank, world_size, seed, self.num_workers)

    def val_dataloader(self) -> SampleLoader[MiniBatch] | list[MiniBatch]:
        """This rank's part of every step of the validation events; nothing if there are none."""
        return self._evaluated("val") if "val" in self.data.splits else []

    def test_dataloader(self) -> SampleLoader[MiniBatch]:
        """This rank's part of every step of the test events."""
        return self._evaluated("test")

    def predict_dataloader(self) -> None:
        """There is nothing to predict.

        Raises:
            InputError: always.
        """
        raise InputError("predict with events: what a pair scores depends on the time that it is asked at; use test")

    def _evaluated(self, split: str) -> SampleLoader[MiniBatch]:
        if split not in self.data.splits:
            raise InputError(f"{self.data.name} has no {split} events: its splits are {', '.join(self.data.splits)}; give {split}_share")
        loader = self._loader(split, *((0, 1) if self.trainer is None else share_of(self.trainer)), self.seed, 0)
        loader.repeats = True  # the same negatives whenever it is gone through
        return loader

    def _loader(self, split: str, rank: int, world_size: int, seed: int, num_workers: int) -> SampleLoader[MiniBatch]:
        numbers: Array = self.data.splits[split]
        schedule = EventSchedule(items=numbers, batch_size=self.batch_size, rank=rank, world_size=world_size, shuffle=False, seed=seed)
        sampler = self._samplers[split].prepare(self._graph.graph, numbers)
        return SampleLoader(
            self._graph, sampler, schedule=schedule, num_workers=num_workers, queue=self._queue if num_workers else DEFAULTS
        )
