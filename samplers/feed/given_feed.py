"""The feed of a loader that deals out the items of its batches itself, a few steps ahead, as those of other libraries do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from hoptrain.engine import InputError, QueueOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ahead import Batch, run_ahead
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Recycled
from hoptrain.samplers.batch.minibatch import SampledBatch, dotted, named
from hoptrain.samplers.batch.transfer import release_copied
from hoptrain.samplers.feed.epochs import threads_for
from hoptrain.samplers.feed.given import Asked, GivenBatches, Made, Place, Source, Work
from hoptrain.samplers.feed.loader import DeviceOptions
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.scratch.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.samplers.feed.device_cache import HitRates
    from hoptrain.samplers.feed.device_feed import DeviceFeed

Index = TypeVar("Index")


class GivenFeed:
    """Sampler processes that stay from epoch to epoch, as long as they have the same work."""

    def __init__(
        self, num_workers: int, prefetch: int | None = None, timeout: float = 0, on_device: DeviceOptions | None = None, bulk: int = 1
    ) -> None:
        """State the processes, what they have ready, and the seconds after which one that makes nothing is replaced; None and 0 for defaults.

        With ``on_device`` there are no processes: a GPU samples ``bulk`` batches at once, one bulk ahead of the batches that are taken.
        """
        options: dict[str, Any] = {"prefetch": prefetch} if prefetch else {}
        options |= {"stall_timeout": timeout} if timeout else {}
        self._workers, self._queue = num_workers, QueueOptions(**options) if num_workers else DEFAULTS
        self._options = on_device
        self._bulk = bulk
        self._ahead = 2 * bulk if on_device else num_workers * (self._queue.prefetch + 1) or 2
        self._memory, self._iteration = Recycled(3), 0
        self._device: DeviceFeed[Any] | None = None
        self._pool: WorkerPool | None = None
        self._thread: Generator[Made] | None = None
        self._work: Work | None = None
        self._owner = 0
        self._task: SampleTask
        self._state: Callable[[], object]

    def epoch(
        self,
        work: Work,
        place: Place,
        indices: Iterable[Index],
        made: Callable[[int, Index, Source], Any],
        is_ahead: bool = False,
        counted: Iterable[Index] = (),
    ) -> Iterator[Any]:
        """The loader's batches of an epoch.

        Args:
            work: what batches are made of.
            place: of the epoch.
            indices: what the loader deals out to each step; asked for no more steps ahead than the workers have slots, than two bulks of a GPU have
                batches, without either for one if they may run ahead, else for none.
            made: (step, index, source) -> the loader's batch; it asks the source once. With workers, a GPU, or ahead, it is called twice for each
                step: before, for what it asks of the source, which raises ``Asked``, and then with the batch.
            is_ahead: whether without workers a thread samples the next batch while the consumer has this one. All else is done in the consumer's
                thread, a step early for ``indices``, and for what ``made`` asks.
            counted: of a ``device_cache``, indices such as those of an epoch, whose batches are sampled to count how often rows are read.

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
        if self._options is not None:
            return self._on_device(self._iteration, place.epoch, indices, made, self._options, counted)
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

    def _on_device(
        self,
        iteration: int,
        epoch: int,
        indices: Iterable[Index],
        made: Callable[[int, Index, Source], Any],
        options: DeviceOptions,
        counted: Iterable[Index],
    ) -> Iterator[Any]:
        """By a GPU, which has the items of two bulks before it."""
        from hoptrain.samplers.feed.device_feed import DeviceFeed

        under_way = deque[tuple[Index, Array]]()

        def bulks(indices: Iterable[Index]) -> Iterator[range]:
            for some in _in_bulks(enumerate(indices), self._bulk):
                for step, index in some:
                    under_way.append((index, _items_of(made, step, index)))
                    self._schedule.give(step, under_way[-1][1])
                yield range(some[0][0], some[-1][0] + 1)

        if self._device is None:
            cache = options.device_cache
            to_count = None if cache is None else ((self._schedule, steps) for steps in bulks(counted))
            self._device = DeviceFeed(self._task, self._bulk, options.feature_placement, cache, epoch, counted=to_count)
            under_way.clear()
        device = self._device
        for step, batch in enumerate(device.run_bulks(epoch, bulks(indices))):
            self._check_iteration(iteration, step)
            index, items = under_way.popleft()
            source = Source(partial(_given, Made(batch, _rows_in(batch), lambda: None)), items, device)
            del batch
            yield made(step, index, source)
            del source

    @property
    def hit_rates(self) -> HitRates | None:
        """With a ``device_cache``, once the first batch was asked for, the share of the rows that comes from it, expected and by epoch."""
        return None if self._device is None else self._device.hit_rates

    def _check_iteration(self, iteration: int, step: int) -> None:
        if iteration != self._iteration:
            raise InputError(f"batch {step} of an iterator whose loader is iterated anew: one epoch goes on at a time; make another loader")

    def _task_for(self, work: Work, place: Place) -> SampleTask:
        self._schedule = GivenBatches(self._ahead, place.rank, place.world_size)
        workspace = Workspace(threads_for(None, self._workers, "cpu")) if self._options is None else self._options.workspace()
        stores = dict(work.stores)
        return SampleTask(graph=work.graph, stores=stores, sampler=work.sampler, schedule=self._schedule, workspace=workspace)

    def _arrived(self, items: Array, arrays: dict[str, Array], header: Any) -> Source:
        """A batch from its slot's arrays and the header that came beside them."""
        rows = {name: arrays.pop(name) for name in list(arrays) if name in self._task.stores or name.startswith("edge_attr.")}
        batch: SampledBatch = header.filled(arrays).out_of(self._task.graph)
        return Source(partial(_given, Made(batch, rows, lambda: None)), items)

    def pids(self) -> list[int]:
        """Process ids of the workers as they are now; none before the first batch."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers, and free what is on a GPU; the next epoch starts anew. They also end with this object, and with this process."""
        self._device = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _in_bulks(steps: Iterator[tuple[int, Index]], bulk: int) -> Iterator[list[tuple[int, Index]]]:
    """Return so many steps with their indices at a time, and at the end those that are left."""
    while some := list(islice(steps, bulk)):
        yield some


def _rows_in(batch: SampledBatch) -> dict[str, Any]:
    """Return the rows that a batch has, by the names that they have in a slot of the queue."""
    of_edges = {f"{named('edge_attr', relation)}.0": block.edge_attr for relation, block in batch.hops[0].items()}
    rows = {dotted("x", kind): own for kind, own in batch.features.items()} | of_edges
    return {name: own for name, own in rows.items() if own is not None}


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
