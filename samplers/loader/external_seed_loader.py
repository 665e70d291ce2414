"""The feed of the loaders of ``hoptrain.pyg`` and ``hoptrain.dgl``, whose items (seeds) are chosen by other code a few steps ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from hoptrain.engine import InputError, WorkerOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ahead import Batch
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.ring import Recycled
from hoptrain.samplers.batch.minibatch import SampledBatch, dotted, named
from hoptrain.samplers.batch.transfer import release_copied
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.loader.cores import threads_for
from hoptrain.samplers.loader.external_seeds import BatchSource, ExternalBatchSampler, LoaderSpec, PreparedBatch, RngContext, SeedsRequested
from hoptrain.samplers.loader.maker import BatchHooks, BatchMaker, DeviceOptions, steps_under_way
from hoptrain.samplers.loader.task import SampleTask

if TYPE_CHECKING:
    from hoptrain.samplers.loader.gpu_cache import HitRates

Index = TypeVar("Index")


class ExternalSeedLoader:
    """A feed for loaders whose items are chosen by other code. Workers keep running across epochs while graph, sampler and features are the same."""

    def __init__(
        self,
        num_workers: int,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        on_device: DeviceOptions | None = None,
        bulk: int = 1,
    ) -> None:
        """Initialise; nothing is started yet.

        Args:
            num_workers: number of worker processes.
            prefetch_factor: number of batches that each worker prepares in advance; None for the default.
            timeout: seconds after which a worker that makes no batch is replaced; 0 for the default.
            on_device: options for sampling on a GPU of this process, without workers.
            bulk: number of batches that the GPU samples at once.
        """
        options: dict[str, Any] = {"prefetch_factor": prefetch_factor} if prefetch_factor else {}
        options |= {"timeout": timeout} if timeout else {}
        self._workers, self._queue = num_workers, WorkerOptions(**options) if num_workers else DEFAULTS
        self._options = None if on_device is None else on_device._replace(bulk=bulk)
        self._iteration = 0
        self._maker: BatchMaker | None = None
        self._sources: Generator[Any] | None = None
        self._work: LoaderSpec | None = None
        self._owner = 0
        self._task: SampleTask
        self._schedule: ExternalBatchSampler

    def epoch(
        self,
        work: LoaderSpec,
        place: RngContext,
        indices: Iterable[Index],
        made: Callable[[int, Index, BatchSource], Any],
        is_ahead: bool = False,
        counted: Iterable[Index] = (),
        items_of: Callable[[Index], Array] | None = None,
    ) -> Iterator[Any]:
        """Return the loader's batches of an epoch.

        Args:
            work: graph, sampler and features from which batches are made.
            place: epoch, rank and seed, which determine the random numbers.
            indices: iterable with the loader's indices of each step. It is read ahead by at most as many steps as workers have slots, or as two bulks of
                a GPU have batches; by one step with ``is_ahead``; otherwise only when a batch is requested.
            made: function (step, index, source) that returns the loader's batch; it calls the source once, with the items. With workers, a GPU or
                ``is_ahead``, and without ``items_of``, it is called twice for each step: first with a source that raises ``SeedsRequested``, to find out
                the items, then with a source that returns the batch.
            is_ahead: True if, without workers, a thread samples the next batch while the consumer uses the current one. ``indices`` and ``made`` are
                always called in the consumer's thread.
            counted: indices, such as those of an epoch, whose batches are sampled in advance to choose the rows of a ``gpu_cache``.
            items_of: function that returns the items (B,) of an index, if they depend on the index alone; None if only ``made`` knows them.

        Raises:
            InputError: ``made`` does not call the source, or requests other items the second time; the loader was iterated again before this iterator
                ended; see also ``LoaderSpec.check``.
        """
        if self._sources is not None:
            self._sources.close()
        if self._maker is None or self._work is None or not work.is_same(self._work) or self._owner != os.getpid():
            work.check()
            self.close()
            self._owner, self._maker = os.getpid(), self._maker_for(work, place)
        self._work = work
        self._schedule.begin(place.seed, place.num_steps)
        self._iteration += 1
        begun = partial(self._begun, self._maker.memory)
        if self._workers or self._options is not None or is_ahead or items_of is not None:
            find = partial(_items_asked_by, made) if items_of is None else lambda _, index: items_of(index)
            under_way = deque[tuple[Index, Array]]()
            steps, to_count = self._steps(indices, find, under_way), self._steps(counted, find, deque(maxlen=0))
            hooks = BatchHooks(self._received, begun, lambda batch, device: PreparedBatch(batch, _rows_in(batch), on_device=device))
            batches = self._maker.run(place.epoch, steps, hooks, is_ahead=is_ahead, state=work.state, counted=to_count)
            sources = self._known(batches, under_way)
        else:
            sources = self._asked(place.epoch, indices, begun)
        return self._batches(self._iteration, sources, made)

    def _batches(
        self, iteration: int, sources: Generator[tuple[Index, BatchSource]], made: Callable[[int, Index, BatchSource], Any]
    ) -> Iterator[Any]:
        """Yield the loader's batches, assembled in the consumer's thread, and close ``sources`` at the end."""
        self._sources = sources
        with closing(sources):
            for step in count():
                if iteration != self._iteration:
                    raise InputError(
                        f"batch {step} of an iterator whose loader was iterated again: a loader has one epoch at a time; make another loader"
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
                    source.rows()  # waits for other threads, which read ids from the workspace
                if source.batch is None:
                    raise _nothing_asked()
                del source  # frees the memory of hoptrain's batch
                yield batch
                del batch

    def _asked(
        self, epoch: int, indices: Iterable[Index], begun: Callable[[int, int, bool], PreparedBatch]
    ) -> Generator[tuple[Index, BatchSource]]:
        """Yield a source for each batch. It samples in this process when the loader calls it; the structure of the batch stays in the workspace."""

        def sampled(step: int, items: Array) -> PreparedBatch:
            self._schedule.give(step, items)
            return begun(epoch, step, False)

        for step, index in enumerate(indices):
            yield index, BatchSource(partial(sampled, step))

    def _steps(self, indices: Iterable[Index], find: Callable[[int, Index], Array], under_way: deque[tuple[Index, Array]]) -> Iterator[int]:
        """Yield the steps of ``indices``. Each step's items are first passed to the schedule and appended to ``under_way``."""
        for step, index in enumerate(indices):
            items = find(step, index)
            under_way.append((index, items))
            self._schedule.give(step, items)
            yield step

    def _known(self, batches: Generator[PreparedBatch], under_way: deque[tuple[Index, Array]]) -> Generator[tuple[Index, BatchSource]]:
        """Yield a source for each finished batch, with the index and items from ``under_way``."""

        def source(batch: PreparedBatch) -> tuple[Index, BatchSource]:
            index, items = under_way.popleft()
            return index, BatchSource(partial(_given, batch), items)

        with closing(batches):
            yield from map(source, batches)  # map keeps no reference to a batch while it waits for the next one

    def _begun(self, memory: Recycled, epoch: int, step: int, is_ahead: bool) -> PreparedBatch:
        """Sample the batch of a step whose items are known, and start gathering its rows in other threads; with ``is_ahead``, also finish gathering."""
        if is_ahead:
            self._task.workspace.take_turns()  # uses a second workspace, since the consumer still has the structure of the previous batch
        batch = self._task.sampled(epoch, step)
        made = PreparedBatch(batch.out_of(self._task.graph), *self._task.start_rows(batch, memory))
        if is_ahead:
            made.finish()
        return made

    def _received(self, received: Batch) -> PreparedBatch:
        """Build the batch from its header and the arrays of its queue slot."""
        arrays, header = received
        rows = {name: arrays.pop(name) for name in list(arrays) if name in self._task.stores or name.startswith("edge_attr.")}
        batch: SampledBatch = header.filled(arrays).out_of(self._task.graph)
        return PreparedBatch(batch, rows)

    @property
    def hit_rates(self) -> HitRates | None:
        """Fraction of row reads that hit the ``gpu_cache``, expected and by epoch; None without a cache, and before the first batch."""
        return None if self._maker is None else self._maker.hit_rates

    def _maker_for(self, work: LoaderSpec, place: RngContext) -> BatchMaker:
        options = self._options
        under_way = steps_under_way(self._workers, self._queue, None if options is None else options.bulk)
        self._schedule = ExternalBatchSampler(under_way, place.rank, place.world_size)
        workspace = Workspace(threads_for(None, self._workers, "cpu")) if options is None else options.workspace()
        stores = dict(work.stores)
        self._task = SampleTask(graph=work.graph, stores=stores, sampler=work.sampler, schedule=self._schedule, workspace=workspace)
        return BatchMaker(self._task, num_workers=self._workers, worker_options=self._queue, device=options)

    def pids(self) -> list[int]:
        """Return the process ids of the current workers; an empty list before the first batch."""
        return [] if self._maker is None else self._maker.pids()

    def close(self) -> None:
        """End the workers and free GPU memory; the next epoch starts new ones. Workers also end with this object and with this process."""
        if self._maker is not None:
            self._maker.close()
            self._maker = None


def _rows_in(batch: SampledBatch) -> dict[str, Any]:
    """Return the rows of a batch by their names in a slot of the queue."""
    of_edges = {f"{named('edge_attr', relation)}.0": block.edge_attr for relation, block in batch.hops[0].items()}
    rows = {dotted("x", kind): own for kind, own in batch.features.items()} | of_edges
    return {name: own for name, own in rows.items() if own is not None}


def _given(batch: PreparedBatch, _: Array) -> PreparedBatch:
    return batch


def _items_asked_by(made: Callable[[int, Index, BatchSource], Any], step: int, index: Index) -> Array:
    """Return the items that a loader requests, by calling its code with a source that raises ``SeedsRequested``."""

    def ask(items: Array) -> PreparedBatch:
        raise SeedsRequested(items)

    try:
        made(step, index, BatchSource(ask))
    except SeedsRequested as asked:
        return asked.items
    raise _nothing_asked()


def _nothing_asked() -> InputError:
    return InputError(
        "a batch was made without hoptrain's sampler: a custom sampler must call one of hoptrain's for every batch; call it once a batch"
    )
