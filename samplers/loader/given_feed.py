"""The feed of a loader that deals out the items of its batches itself, a few steps ahead, as those of other libraries do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from hoptrain.engine import InputError, WorkerOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ahead import Batch, run_ahead
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Recycled
from hoptrain.samplers.batch.minibatch import SampledBatch, dotted, named
from hoptrain.samplers.batch.transfer import release_copied
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.loader.epochs import threads_for
from hoptrain.samplers.loader.given import Asked, GivenBatches, Made, Place, Source, Work
from hoptrain.samplers.loader.loader import DeviceOptions
from hoptrain.samplers.loader.task import SampleTask

if TYPE_CHECKING:
    from hoptrain.samplers.loader.device_feed import DeviceFeed
    from hoptrain.samplers.loader.gpu_cache import HitRates

Index = TypeVar("Index")


class GivenFeed:
    """Sampler processes that stay from epoch to epoch, as long as they have the same work."""

    def __init__(
        self,
        num_workers: int,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        on_device: DeviceOptions | None = None,
        bulk: int = 1,
    ) -> None:
        """State the processes, what they have ready, and the seconds after which one that makes nothing is replaced; None and 0 for defaults.

        With ``on_device`` there are no processes: a GPU samples ``bulk`` batches at once, one bulk ahead of the batches that are taken.
        """
        options: dict[str, Any] = {"prefetch_factor": prefetch_factor} if prefetch_factor else {}
        options |= {"timeout": timeout} if timeout else {}
        self._workers, self._queue = num_workers, WorkerOptions(**options) if num_workers else DEFAULTS
        self._options = on_device
        self._bulk = bulk
        self._ahead = 2 * bulk if on_device else num_workers * (self._queue.prefetch_factor + 1) or 2
        self._memory, self._iteration = Recycled(3), 0
        self._device: DeviceFeed[Any] | None = None
        self._pool: WorkerPool | None = None
        self._sources: Generator[Any] | None = None
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
            counted: of a ``gpu_cache``, indices such as those of an epoch, whose batches are sampled to count how often rows are read.

        Raises:
            InputError: ``made`` does not ask, or asks for something else the second time; the loader was iterated anew; see ``Work.check``.
        """
        if self._sources is not None:
            self._sources.close()
        if self._work is None or not work.is_same(self._work) or self._owner != os.getpid():
            work.check()
            self.close()
            self._owner, self._task = os.getpid(), self._task_for(work, place)
        self._work, self._state = work, work.state
        self._schedule.begin(place.seed, place.num_steps)
        self._iteration += 1
        if self._workers or self._options is not None or is_ahead:
            under_way = deque[tuple[Index, Array]]()
            steps, to_count = self._steps(indices, made, under_way), self._steps(counted, made, deque(maxlen=0))
            sources = self._known(place.epoch, steps, under_way, to_count)
        else:
            sources = self._asked(place.epoch, indices)
        return self._batches(self._iteration, sources, made)

    def _batches(
        self, iteration: int, sources: Generator[tuple[Index, Source]], made: Callable[[int, Index, Source], Any]
    ) -> Iterator[Any]:
        """Yield the loader's batches, made in the consumer's thread; ``sources`` end with this."""
        self._sources = sources
        with closing(sources):
            for step in count():
                if iteration != self._iteration:
                    raise InputError(
                        f"batch {step} of an iterator whose loader is iterated anew: one epoch goes on at a time; make another loader"
                    )
                release_copied()
                coming = next(sources, None)
                if coming is None:
                    return
                index, source = coming
                del coming
                try:
                    batch = made(step, index, source)
                finally:
                    source.rows()  # other threads gather them by ids in the workspace
                if source.batch is None:
                    raise _nothing_asked()
                del source  # which holds the memory of hoptrain's batch
                yield batch
                del batch

    def _asked(self, epoch: int, indices: Iterable[Index]) -> Generator[tuple[Index, Source]]:
        """Yield sources that sample when they are asked, in this process; a batch's structure stays in the workspace."""
        for step, index in enumerate(indices):
            yield index, Source(partial(self._sampled, epoch, step))

    def _sampled(self, epoch: int, step: int, items: Array) -> Made:
        self._schedule.give(step, items)
        return self._begun(epoch, step)

    def _begun(self, epoch: int, step: int) -> Made:
        """The batch of a step whose items are given; other threads have begun with its rows."""
        batch = self._task.sampled(epoch, step)
        return Made(batch.out_of(self._task.graph), *self._task.start_rows(batch, self._memory))

    def _steps(
        self, indices: Iterable[Index], made: Callable[[int, Index, Source], Any], under_way: deque[tuple[Index, Array]]
    ) -> Iterator[int]:
        """Yield the steps of ``indices``, once the items of each are given and noted."""
        for step, index in enumerate(indices):
            items = _items_of(made, step, index)
            under_way.append((index, items))
            self._schedule.give(step, items)
            yield step

    def _known(
        self, epoch: int, steps: Iterator[int], under_way: deque[tuple[Index, Array]], counted: Iterator[int]
    ) -> Generator[tuple[Index, Source]]:
        """Yield sources whose batches were made before, by workers, a GPU or a thread, from the items of ``steps``, which are ``under_way``."""

        def source(batch: Made) -> tuple[Index, Source]:
            index, items = under_way.popleft()
            return index, Source(partial(_given, batch), items)

        if self._options is not None:
            batches = self._by_gpu(epoch, steps, self._options, counted)
        elif self._workers:
            batches = self._by_workers(epoch, steps)
        else:
            batches = run_ahead(partial(self._by_thread, epoch), steps, self._state)
        with closing(batches):
            yield from map(source, batches)  # which holds no batch while the next one is waited for

    def _by_thread(self, epoch: int, step: int) -> Made:
        self._task.workspace.take_turns()  # the consumer has the structure of the batch before
        batch = self._begun(epoch, step)
        batch.finish()
        return batch

    def _by_workers(self, epoch: int, steps: Iterator[int]) -> Generator[Made]:
        """Yield the batches of processes, which have the items of some steps before them."""
        for first in steps:  # all others follow in the pool
            if self._pool is None:
                self._pool = WorkerPool(self._task, self._workers, self._queue, batch_bytes=self._task.rehearse(epoch))
            yield from map(self._arrived, self._pool.run_given(epoch, chain([first], steps), self._ahead))

    def _arrived(self, arrived: Batch) -> Made:
        """Return a batch of its slot's arrays and the header that came beside them."""
        arrays, header = arrived
        rows = {name: arrays.pop(name) for name in list(arrays) if name in self._task.stores or name.startswith("edge_attr.")}
        batch: SampledBatch = header.filled(arrays).out_of(self._task.graph)
        return Made(batch, rows)

    def _by_gpu(self, epoch: int, steps: Iterator[int], options: DeviceOptions, counted: Iterator[int]) -> Generator[Made]:
        """Yield the batches of a GPU, which has the items of two bulks before it."""
        from hoptrain.samplers.loader.device_feed import DeviceFeed

        if self._device is None:
            cache = options.gpu_cache
            to_count = None if cache is None else ((self._schedule, bulk) for bulk in _in_bulks(counted, self._bulk))
            self._device = DeviceFeed(self._task, self._bulk, options.feature_placement, cache, epoch, counted=to_count)
        device = self._device

        def made(batch: Any) -> Made:
            return Made(batch, _rows_in(batch), on_device=device)

        yield from map(made, device.run_bulks(epoch, _in_bulks(steps, self._bulk)))

    @property
    def hit_rates(self) -> HitRates | None:
        """With a ``gpu_cache``, once the first batch was asked for, the share of the rows that comes from it, expected and by epoch."""
        return None if self._device is None else self._device.hit_rates

    def _task_for(self, work: Work, place: Place) -> SampleTask:
        self._schedule = GivenBatches(self._ahead, place.rank, place.world_size)
        workspace = Workspace(threads_for(None, self._workers, "cpu")) if self._options is None else self._options.workspace()
        stores = dict(work.stores)
        return SampleTask(graph=work.graph, stores=stores, sampler=work.sampler, schedule=self._schedule, workspace=workspace)

    def pids(self) -> list[int]:
        """Process ids of the workers as they are now; none before the first batch."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers, and free what is on a GPU; the next epoch starts anew. They also end with this object, and with this process."""
        self._device = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _in_bulks(steps: Iterator[int], bulk: int) -> Iterator[range]:
    """Yield so many steps at a time, and at the end those that are left."""
    while some := list(islice(steps, bulk)):
        yield range(some[0], some[-1] + 1)


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
