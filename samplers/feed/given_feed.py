"""The feed of a loader that deals out the items of its batches itself, a few steps ahead, as those of other libraries do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hoptrain.engine import InputError, QueueOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ahead import Batch, run_ahead
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Recycled
from hoptrain.kernels.cpu.shuffle import random_words
from hoptrain.kernels.shared.philox import HOP_HOST, MAX_BATCH
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.sampled import SampledBatch
from hoptrain.samplers.batch.transfer import release_copied
from hoptrain.samplers.feed.epochs import rank_and_world_size, threads_for
from hoptrain.samplers.feed.given import GivenBatches
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.scratch.workspace import Workspace

Index = TypeVar("Index")


class Place(NamedTuple):
    """Where an epoch's random numbers are."""

    seed: int
    epoch: int
    rank: int
    world_size: int
    num_steps: int

    @classmethod
    def of(cls, seed: int, epoch: int, num_steps: int | None) -> Place:
        """Of this rank. Where nobody knows the number of steps, each rank has its part of all numbers that batches may have."""
        rank, world_size = rank_and_world_size()
        return cls(seed, epoch, rank, world_size, MAX_BATCH // world_size if num_steps is None else num_steps)

    def state(self, step: int) -> int:
        """Where a generator of the host starts for the batch of a step."""
        return int(random_words(1, self.seed, self.epoch, self.rank * self.num_steps + step, HOP_HOST)[0])


class Work(NamedTuple):
    """What batches are made of. Another object in one of the places starts the workers anew."""

    graph: Any
    """A ``Graph`` or a ``HeteroGraph``."""
    sampler: Sampler[Any, Any]
    """Prepared."""
    stores: Mapping[str, Array]
    """Features that come with the vertices of a batch: rows (V, F), by the name that they have for it."""
    state: Callable[[], object] = tuple
    """Of the features: another one after something was written into them."""

    def is_same(self, other: Work) -> bool:
        """Whether all objects are the same ones."""
        if self.graph is not other.graph or self.sampler is not other.sampler or self.stores.keys() != other.stores.keys():
            return False
        return all(rows is other.stores[name] for name, rows in self.stores.items())

    def check(self) -> None:
        """Refuse features that are not one row for each vertex: gathering reads rows without looking at how many there are.

        Raises:
            InputError: there are fewer or more.
        """
        for name, rows in self.stores.items():
            kind = name.partition(".")[2]
            number = self.graph.num_nodes[kind] if kind else self.graph.num_nodes
            if len(rows) != number:
                raise InputError(
                    f"{name} has {len(rows):,} rows for {number:,} vertices: give one for each, and a loader of the graph as it is"
                )


def plain_rows(x: Any) -> Array | None:
    """A tensor of torch as an array that workers may gather rows of: (V, F) numbers on the CPU, one row after another. None for any other object.

    Whatever else an index into ``x`` would do, such as to hand on gradients, is for torch.
    """
    import torch

    gathered = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in gathered and x.dim() == 2
    if not is_plain or not x.is_contiguous() or x.requires_grad or x.is_neg() or x.is_inference():
        return None
    rows: Array = x.numpy()
    return rows


def version_of(x: Any) -> int:
    """Return how often torch changed a tensor in place; 0 for other objects, and for tensors of inference mode, whose changes torch does not count."""
    try:
        return int(x._version)
    except (AttributeError, RuntimeError):
        return 0


class Made(NamedTuple):
    """A batch, its rows by name, and what has to be called before these are read."""

    batch: SampledBatch
    rows: dict[str, Array]
    finish: Callable[[], None]


class Source:
    """From the items (B,) that a loader's batch asks for to the batch of hoptrain's, and the rows that come with it, in memory of their own.

    While the batch becomes one of the loader's, other threads may gather the rows.
    """

    def __init__(self, make: Callable[[Array], Made], items: Array | None = None) -> None:
        """State what makes the batch, and the items where they are known."""
        self._make, self._items = make, items
        self._made: Made | None = None

    def __call__(self, items: Array) -> Any:
        """The batch, without rows; its arrays are good until the next one.

        Raises:
            InputError: other items than before.
        """
        if self._items is not None and not np.array_equal(items, self._items):
            raise InputError("the sampler asked for other seeds the second time: let a negative sampler draw by torch's generator alone")
        if self._made is None:
            self._items, self._made = items, self._make(items)
        return self._made.batch

    @property
    def batch(self) -> Any:
        """The batch; None as long as nobody has asked for it."""
        return self._made and self._made.batch

    @property
    def names(self) -> list[str]:
        """Of the rows."""
        return list(self._made.rows) if self._made else []

    def rows(self) -> dict[str, Array]:
        """The rows (S, F) by the name of their store."""
        if self._made is None:
            return {}
        self._made.finish()
        return self._made.rows


class Asked(Exception):
    """What a batch asks of hoptrain: raised by a source that is there to know it."""

    def __init__(self, items: Array) -> None:
        """Note the items (B,)."""
        super().__init__()
        self.items = items


class GivenFeed:
    """Sampler processes that stay from epoch to epoch, as long as they have the same work."""

    def __init__(self, num_workers: int, prefetch: int | None = None, timeout: float = 0) -> None:
        """State the processes, what they have ready, and the seconds after which one that makes nothing is replaced; None and 0 for defaults."""
        options: dict[str, Any] = {"prefetch": prefetch} if prefetch else {}
        options |= {"stall_timeout": timeout} if timeout else {}
        self._workers, self._queue = num_workers, QueueOptions(**options) if num_workers else DEFAULTS
        self._ahead = num_workers * (self._queue.prefetch + 1) or 2
        self._memory, self._iteration = Recycled(3), 0
        self._pool: WorkerPool | None = None
        self._thread: Generator[Made] | None = None
        self._work: Work | None = None
        self._owner = 0
        self._task: SampleTask
        self._state: Callable[[], object]

    def epoch(
        self, work: Work, place: Place, indices: Iterable[Index], made: Callable[[int, Index, Source], Any], is_ahead: bool = False
    ) -> Iterator[Any]:
        """The loader's batches of an epoch.

        Args:
            work: what batches are made of.
            place: of the epoch.
            indices: what the loader deals out to each step; asked for no more steps ahead than the workers have slots, without workers for one if
                they may run ahead, else for none.
            made: (step, index, source) -> the loader's batch; it asks the source once. With workers, or ahead, it is called twice for each step:
                before, for what it asks of the source, which raises ``Asked``, and then with the batch.
            is_ahead: whether without workers a thread samples the next batch while the consumer has this one. All else is done in the consumer's
                thread, a step early for ``indices``, and for what ``made`` asks.

        Raises:
            InputError: ``made`` does not ask, or asks for something else the second time; the loader was iterated anew; see ``Work.check``.
        """
        if self._thread is not None:
            self._thread.close()
        if self._work is None or not work.is_same(self._work) or self._owner != os.getpid():
            work.check()
            self.close()
            self._owner, self._task = os.getpid(), self._task_for(work, place)
        self._work, self._state = work, work.state
        self._schedule.begin(place.seed, place.num_steps)
        self._iteration += 1
        batches = self._sent if self._workers else self._made_ahead if is_ahead else self._here
        return batches(self._iteration, place.epoch, indices, made)

    def _here(self, iteration: int, epoch: int, indices: Iterable[Index], made: Callable[[int, Index, Source], Any]) -> Iterator[Any]:
        """In this process: a batch is sampled when it is asked for, and its structure stays in the workspace."""
        for step, index in enumerate(indices):
            self._check_iteration(iteration, step)
            release_copied()
            source = Source(partial(self._sampled, epoch, step))
            try:
                batch = made(step, index, source)
            finally:
                source.rows()  # other threads gather them by ids in the workspace
            if source.batch is None:
                raise _nothing_asked()
            del source  # which holds the memory of hoptrain's batch
            yield batch
            del batch

    def _sampled(self, epoch: int, step: int, items: Array) -> Made:
        self._schedule.give(step, items)
        return self._begun(epoch, step)

    def _begun(self, epoch: int, step: int) -> Made:
        """The batch of a step whose items are given; other threads have begun with its rows."""
        batch = self._task.sampled(epoch, step)
        return Made(batch.out_of(self._task.graph), *self._task.start_rows(batch, self._memory))

    def _made_ahead(self, iteration: int, epoch: int, indices: Iterable[Index], made: Callable[[int, Index, Source], Any]) -> Iterator[Any]:
        """By a thread of this process, which makes the next batch meanwhile."""
        under_way = deque[tuple[Index, Array]]()

        def steps() -> Iterator[int]:
            for step, index in enumerate(indices):
                under_way.append((index, _items_of(made, step, index)))
                self._schedule.give(step, under_way[-1][1])
                yield step

        def make(step: int) -> Made:
            self._task.workspace.take_turns()  # the consumer has the structure of the batch before
            batch = self._begun(epoch, step)
            batch.finish()
            return batch

        with closing(run_ahead(make, steps(), self._state)) as self._thread:
            for step in count():
                self._check_iteration(iteration, step)
                release_copied()
                arrived = next(self._thread, None)
                if arrived is None:
                    return
                index, items = under_way.popleft()
                source = Source(partial(_given, arrived), items)
                del arrived
                batch = made(step, index, source)
                del source
                yield batch
                del batch

    def _sent(self, iteration: int, epoch: int, indices: Iterable[Index], made: Callable[[int, Index, Source], Any]) -> Iterator[Any]:
        """By workers, which have the items of some steps before them."""
        coming, under_way = enumerate(indices), deque[tuple[Index, Array]]()
        arriving: Iterator[Batch] | None = None
        for step in count():
            self._check_iteration(iteration, step)
            number = len(under_way)
            for place, index in islice(coming, self._ahead - number):
                under_way.append((index, _items_of(made, place, index)))
                self._schedule.give(place, under_way[-1][1])
            if not under_way:
                return
            if arriving is None:
                if self._pool is None:
                    self._pool = WorkerPool(self._task, self._workers, self._queue, batch_bytes=self._task.rehearse(epoch))
                arriving = self._pool.run(epoch, range(len(under_way)))
            elif len(under_way) > number and self._pool is not None:
                self._pool.extend(step + len(under_way))
            index, items = under_way.popleft()
            release_copied()
            yield made(step, index, self._arrived(items, *next(arriving)))

    def _check_iteration(self, iteration: int, step: int) -> None:
        if iteration != self._iteration:
            raise InputError(f"batch {step} of an iterator whose loader is iterated anew: one epoch goes on at a time; make another loader")

    def _task_for(self, work: Work, place: Place) -> SampleTask:
        self._schedule = GivenBatches(self._ahead, place.rank, place.world_size)
        workspace = Workspace(threads_for(None, self._workers, "cpu"))
        schedule: Any = self._schedule
        return SampleTask(graph=work.graph, stores=dict(work.stores), sampler=work.sampler, schedule=schedule, workspace=workspace)

    def _arrived(self, items: Array, arrays: dict[str, Array], header: Any) -> Source:
        """A batch from its slot's arrays and the header that came beside them."""
        rows = {name: arrays.pop(name) for name in list(arrays) if name in self._task.stores}
        batch: SampledBatch = header.filled(arrays).out_of(self._task.graph)
        return Source(partial(_given, Made(batch, rows, lambda: None)), items)

    def pids(self) -> list[int]:
        """Process ids of the workers as they are now; none before the first batch."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers; the next epoch starts new ones. They also end with this object, and with this process."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _given(batch: Made, _: Array) -> Made:
    """What makes a batch that is there."""
    return batch


def _items_of(made: Callable[[int, Index, Source], Any], step: int, index: Index) -> Array:
    """What a loader's batch asks for."""

    def ask(items: Array) -> Made:
        raise Asked(items)

    try:
        made(step, index, Source(ask))
    except Asked as asked:
        return asked.items
    raise _nothing_asked()


def _nothing_asked() -> InputError:
    return InputError(
        "a batch was made without asking hoptrain for its sample: let a sampler of your own call one of hoptrain's in every batch"
    )
