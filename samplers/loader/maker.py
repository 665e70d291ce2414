"""``BatchMaker``, which chooses how a loader's batches are made: by a GPU, worker processes, threads, or the consumer's thread.

``SampleLoader``, the loader of pipeline chunks, and those of ``hoptrain.pyg`` and ``hoptrain.dgl`` use it; so do loaders of items, with workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import PLACEMENTS, check_cuda, split_device, torch_on_device
from hoptrain.engine.errors import check_choice
from hoptrain.engine.features.quantized import QuantParams
from hoptrain.engine.machine import parse_size
from hoptrain.engine.queue.ahead import Batch, make_in, run_ahead, run_together
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Recycled
from hoptrain.engine.queue.worker import Task
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.loader.cores import is_known, threads_for
from hoptrain.samplers.loader.task import SampleTask

if TYPE_CHECKING:
    from hoptrain.samplers.loader.device_feed import DeviceFeed
    from hoptrain.samplers.loader.gpu_cache import HitRates

LoaderBatch = TypeVar("LoaderBatch")

AT_ONCE_BYTES = 2 << 30
"""Maximum total bytes of the batches that threads of this process make at once, including their node tables. Larger batches are made one by one."""


class FeedTask(Task, Protocol):
    """A task of worker processes whose first batch can be made in the training process before they start."""

    def rehearse(self, epoch: int) -> int:
        """Make the first batch of an epoch and return its size in bytes."""
        ...


class ThreadTasks(NamedTuple):
    """Tasks that make several batches of a loader at the same time, each in its own thread.

    Attributes:
        tasks: one task per thread; all of them make the same batches.
        run: function that runs other functions concurrently, one of them in the calling thread, until all have ended.
        capacity: maximum total bytes of the batches that are made at once.
    """

    tasks: Sequence[Task]
    run: Callable[[Iterable[Callable[[], None]]], None]
    capacity: int

    @classmethod
    def of(cls, task: SampleTask) -> ThreadTasks | None:
        """Return the tasks for the threads of a task's workspace; None if the order in which batches are sampled may matter."""
        sampler, workspace = task.sampler, task.workspace
        if not is_known(sampler) or sampler.feedback or sampler.state():
            return None
        tasks = [replace(task, workspace=workspace.part(i)) for i in range(workspace.threads)]
        numbers = task.graph.num_nodes
        num_nodes = numbers if isinstance(numbers, int) else sum(numbers.values())
        return cls(tasks, workspace.run, AT_ONCE_BYTES - 4 * len(tasks) * num_nodes)


class BatchHooks(NamedTuple, Generic[LoaderBatch]):
    """The functions with which a loader builds its own batches.

    Attributes:
        received: function that builds the loader's batch from the arrays of a queue slot and the return value of the task.
        here: function of epoch and step that makes the loader's batch in this process. Its third argument is true if a thread makes the batch while the
            consumer uses the previous one. None if the task makes batches.
        on_device: function that builds the loader's batch from a batch on the GPU and its feed.
        check: function that is called before each batch that is made in this process when the consumer requests it.
    """

    received: Callable[[Batch], LoaderBatch]
    here: Callable[[int, int, bool], LoaderBatch] | None = None
    on_device: Callable[[Any, DeviceFeed[Any]], LoaderBatch] = lambda batch, _: batch
    check: Callable[[], object] = tuple


class BatchMaker:
    """A maker of a loader's batches. It has no reference to the loader, so workers end as soon as the loader is deleted.

    A batch is made by the first of these that the options (in parentheses) enable:

    * a GPU of this process, one bulk before the consumer needs it (``device``);
    * worker processes, as many batches in advance as they have queue slots (``num_workers``);
    * a thread of this process, while the consumer uses the previous batch (``is_ahead`` of ``run``);
    * several threads of this process, one batch each, when the consumer requests a batch (``threads``);
    * the consumer's thread, when it requests a batch.

    Batches are bit-identical in all cases. Workers start once, and run until ``close()``.

    Attributes:
        num_workers: number of worker processes.
        memory: memory for batches that are made in this process; it is reused once a batch has been deleted.
    """

    def __init__(
        self,
        task: FeedTask,
        *,
        num_workers: int = 0,
        worker_options: WorkerOptions = DEFAULTS,
        on_map: Callable[[Array], None] | None = None,
        threads: int = 1,
        device: DeviceOptions | None = None,
        columns: dict[str, QuantParams] | None = None,
    ) -> None:
        """Initialise; nothing is started yet.

        Args:
            task: task that makes a batch in the arrays of a queue slot.
            num_workers: number of worker processes.
            worker_options: options of the workers' queue.
            on_map: function that is called with each mapping of a slot in this process, (bytes,) uint8.
            threads: number of the workspace's threads that may each make a batch at the same time; the task is then a ``SampleTask``.
            device: options of the GPU of this process that samples; the task is then a ``SampleTask`` with its workspace there.
            columns: scales of the quantised stores, by name; batches on a GPU have dequantised features.
        """
        self.num_workers = num_workers
        self.memory: Recycled = Recycled(max(2, threads + 1))
        self._task: Any = task
        self._queue, self._on_map, self._threads = worker_options, on_map, threads
        self._device, self._columns = device, columns
        self._pool: WorkerPool | None = None
        self._feed: DeviceFeed[Any] | None = None

    def start(self, epoch: int) -> WorkerPool:
        """Return the worker processes. Start them if necessary, after making the first batch of ``epoch`` here, so that they find compiled kernels."""
        if self._pool is None:
            size = self._task.rehearse(epoch)
            self._pool = WorkerPool(self._task, self.num_workers, self._queue, batch_bytes=size, on_map=self._on_map)
        return self._pool

    def run(
        self,
        epoch: int,
        steps: Iterable[int],
        hooks: BatchHooks[LoaderBatch],
        *,
        is_ahead: bool = False,
        state: Callable[[], object] = tuple,
        counted: Iterable[int] | None = None,
    ) -> Generator[LoaderBatch]:
        """Yield the batches of some steps in order. Another call ends an unfinished iterator.

        Args:
            epoch: the epoch.
            steps: a range, or an iterator of steps from 0 on. The iterator is read in the consumer's thread, at most ``steps_under_way`` steps before
                their batches are delivered.
            hooks: functions of the loader.
            is_ahead: True if a thread may make the next batch in advance, without a GPU and workers.
            state: with ``is_ahead``, function that returns the version of graph and features. A batch that was made before a change is made again.
            counted: steps whose batches are sampled in advance to choose the rows of a ``gpu_cache``; by default those of the epoch.

        Raises:
            WorkerError: the task failed, or a worker repeatedly died or made no batch.
            InputError: the task raised it.
        """
        if self._device is not None:
            return self._by_gpu(self._device, epoch, steps, hooks, counted)
        if not self.num_workers:
            here = hooks.here or partial(self._by_task, hooks)
            return run_ahead(lambda step: here(epoch, step, True), steps, state) if is_ahead else self._on_demand(epoch, steps, hooks)
        if isinstance(steps, range):
            return self._from_slots(self.start(epoch).run(epoch, steps), hooks)
        return self._by_workers(epoch, iter(steps), hooks)

    @property
    def num_ready(self) -> int:
        """Number of finished batches in the queue at the time of the last wait; 0 without workers."""
        return 0 if self._pool is None else self._pool.num_ready()

    @property
    def hit_rates(self) -> HitRates | None:
        """Fraction of row reads that hit the ``gpu_cache``, expected and by epoch; None without a cache, and before the first batch."""
        return None if self._feed is None else self._feed.hit_rates

    def pids(self) -> list[int]:
        """Return the process ids of the current workers; an empty list before the first batch."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers and free GPU memory; the next iteration starts new ones."""
        self._feed = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _by_gpu(
        self, options: DeviceOptions, epoch: int, steps: Iterable[int], hooks: BatchHooks[LoaderBatch], counted: Iterable[int] | None
    ) -> Generator[LoaderBatch]:
        from hoptrain.samplers.loader.device_feed import DeviceFeed, in_bulks

        if self._feed is None:
            bulk, cache = options.bulk, options.gpu_cache
            bulks = None if counted is None or cache is None else ((self._task.schedule, some) for some in in_bulks(counted, bulk or 1))
            self._feed = DeviceFeed(self._task, bulk, options.feature_placement, cache, epoch, self._columns, bulks)
        feed, batches = self._feed, self._feed.run(epoch, steps)
        yield from map(hooks.on_device, batches, repeat(feed))  # map keeps no reference to a batch while it waits for the next one

    def _by_workers(self, epoch: int, steps: Iterator[int], hooks: BatchHooks[LoaderBatch]) -> Generator[LoaderBatch]:
        for first in steps:  # the first batch is made here and needs the first items; the pool takes the others
            ahead = steps_under_way(self.num_workers, self._queue)
            yield from self._from_slots(self.start(epoch).run_given(epoch, chain([first], steps), ahead), hooks)

    @staticmethod
    def _from_slots(batches: Iterator[Batch], hooks: BatchHooks[LoaderBatch]) -> Generator[LoaderBatch]:
        yield from map(hooks.received, batches)  # map keeps no reference to a batch while it waits for the next one

    def _on_demand(self, epoch: int, steps: Iterable[int], hooks: BatchHooks[LoaderBatch]) -> Generator[LoaderBatch]:
        at_once = ThreadTasks.of(self._task) if self._threads > 1 else None
        if at_once is None or not isinstance(steps, range):
            here = hooks.here or partial(self._by_task, hooks)
            for step in steps:
                hooks.check()
                yield here(epoch, step, False)
            return
        batches = run_together(self._task, at_once.tasks, at_once.run, epoch, steps, self.memory, at_once.capacity)
        for _ in steps:
            hooks.check()
            yield hooks.received(next(batches))

    def _by_task(self, hooks: BatchHooks[LoaderBatch], epoch: int, step: int, _: bool) -> LoaderBatch:
        return hooks.received(make_in(self.memory, self._task, epoch, step))


def steps_under_way(num_workers: int, worker_options: WorkerOptions, bulk: int | None = None) -> int:
    """Return the maximum number of steps that are requested before their batches are delivered.

    Args:
        num_workers: number of worker processes; each of their queue slots is for one step.
        worker_options: options of the queue between workers and trainer.
        bulk: number of batches that a GPU samples at once (it has two bulks in progress); None without a GPU.
    """
    if bulk is not None:
        return 2 * bulk
    return num_workers * (worker_options.prefetch_factor + 1) or 2  # two without workers, since a thread may make the next batch


class DeviceOptions(NamedTuple):
    """The options of sampling on a GPU, as in ``SampleLoader``."""

    gpu: int | None = None
    bulk: int | None = None
    graph_placement: str = "auto"
    feature_placement: str = "auto"
    gpu_cache: float | str | None = None
    cuda_graphs: bool = True

    @classmethod
    def checked(cls, device: Any, **options: Any) -> DeviceOptions | None:
        """Return the options, or None if ``device`` is the CPU or None.

        Args:
            device: device on which batches are sampled.
            options: values of all fields except for ``gpu``.

        Raises:
            InputError: an option is out of range or has no effect with the others; CUDA cannot be used.
        """
        name = "cpu" if device is None else str(device)
        found = cls(split_device(name)[1], **options)
        return None if workspace_on(name, 0, DEFAULTS, found).device == "cpu" else found

    def workspace(self) -> Workspace:
        """Return a new workspace on the GPU."""
        return Workspace(1, "cuda", placement=self.graph_placement, gpu=self.gpu, cuda_graphs=self.cuda_graphs)


def workspace_on(
    device: str,
    num_workers: int,
    worker_options: WorkerOptions,
    options: DeviceOptions,
    *,
    pin_memory: bool = False,
    threads: int | None = None,
) -> Workspace:
    """Return a workspace on a device after checking all options that depend on the device; arguments are those of ``SampleLoader``.

    Raises:
        InputError: an option is out of range or has no effect with the others; CUDA cannot be used.
    """
    kind, gpu = split_device(device)
    _check_options(num_workers, worker_options, kind, gpu, options.bulk, pin_memory)
    _check_placements(kind, num_workers, options.graph_placement, options.feature_placement, options.gpu_cache)
    number = threads_for(threads, num_workers, kind)
    return Workspace(number, kind, placement=options.graph_placement, gpu=gpu, cuda_graphs=options.cuda_graphs)


def _check_options(
    num_workers: int, worker_options: WorkerOptions, device: str, gpu: int | None, bulk: int | None, pin_memory: bool
) -> None:
    """Raise InputError if an option is out of range, or has no effect with the others."""
    if num_workers < 0:
        raise InputError(f"num_workers is {num_workers}: must be at least 0; give 0 to sample in this process")
    for name, value in vars(worker_options).items():
        if num_workers == 0 and value != getattr(DEFAULTS, name):
            raise InputError(
                f"worker_options.{name} is {value} with num_workers 0: the queue belongs to worker processes; leave it out or set num_workers"
            )
    if bulk is not None and (bulk < 1 or device == "cpu" or num_workers > 0):
        raise InputError(f'bulk is {bulk}: must be at least 1, and needs device="cuda" and num_workers=0; leave it out otherwise')
    if pin_memory and torch_on_device() is None:
        raise InputError("pin_memory is True: torch must have a CUDA device, for which memory is pinned; leave it out")
    if device == "cuda":
        check_cuda(gpu)


def _check_placements(device: str, num_workers: int, graph: str, features: str, cache: float | str | None) -> None:
    """Raise InputError if a placement is unknown, or has no effect with the other options."""
    check_choice("graph_placement", graph, PLACEMENTS)
    check_choice("feature_placement", features, PLACEMENTS)
    if graph != "auto" and device == "cpu":
        raise InputError(f'graph_placement is {graph!r}: it is for a GPU that samples, with device="cuda"; leave it out')
    if features != "auto" and (device == "cpu" or num_workers):
        raise InputError(
            f'feature_placement is {features!r}: it is for a GPU that samples, with device="cuda" and num_workers=0; leave it out'
        )
    if cache is None:
        return
    parse_size(cache, "gpu_cache")
    if device == "cpu" or num_workers:
        raise InputError(f'gpu_cache is {cache}: it is for a GPU that samples, with device="cuda" and num_workers=0; leave it out')
    if features == "device":
        raise InputError(f"gpu_cache is {cache} with feature_placement='device': all rows are then in device memory; leave one of them out")
