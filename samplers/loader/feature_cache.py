"""The host feature cache of a loader, for features that do not fit in memory. It reads rows from files before batches need them.

A batch depends only on its address. So the process that fills the cache (``hoptrain.engine.storage``) can sample future batches to find out their rows. It
keeps these batches for the loader, which samples a batch again only if there was no memory for it. For each table (node features of each type, edge
features) the process makes one plan from the batches of all ranks of a machine. Batches are the same as with features in memory.

If features are partitioned over several machines, the process requests rows of other machines from their owners, for a window of steps at once. If the
graph is partitioned too, it samples together with the other machines, and the loader receives its samples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hoptrain.engine import InputError, Schedule, WorkerOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.meeting import Meeting, meeting_of
from hoptrain.engine.gpu_memory.one_copy import machine
from hoptrain.engine.partition.fill import DistributedCacheFillTask
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.queue.ahead import Batch
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.file_rows import StoredRows
from hoptrain.engine.storage.filler import CacheFillTask, Filled, run_and_epoch
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.distributed.samples_ahead import DistributedPrefetchSampler, own_columns_of
from hoptrain.samplers.distributed.window import check_alone
from hoptrain.samplers.loader.gather import gather_rows, gather_rows_of_two
from hoptrain.samplers.loader.memory_left import (
    Messages,
    budget_of,
    feature_files,
    held_whole,
    log_budget,
    mapped_beside,
    memory_bytes,
    memory_left,
    num_elsewhere,
)
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.edge_memory import (
    EDGE_SHARE,
    HANDED_SHARE,
    SAMPLE_SHARE,
    are_edges_read,
    edge_files,
    steps_in_flight,
)
from hoptrain.samplers.loader.topology.superbatch import StepAccesses, step_accesses
from hoptrain.samplers.superbatch.transport import BatchReceiver, message_slots

_log = logging.getLogger(__name__)

LoaderBatch = TypeVar("LoaderBatch")

LOOKAHEAD = 256
"""Default of ``prefetch_steps``, the number of steps whose rows are read in advance; limited memory may lower it."""
WINDOWS = 32
"""Number of windows into which ``prefetch_steps`` steps are divided; rows of other machines are requested for all steps of a window at once."""
PARTED_LOOKAHEAD, PARTED_WINDOWS = 32, 4
"""Values of ``LOOKAHEAD`` and ``WINDOWS`` for a partitioned graph. They are smaller, since the samples of all planned steps are in memory."""
FETCH_S = 300.0
"""Minimum timeout in seconds for messages between machines, since a machine may be delayed by writing a checkpoint."""


@dataclass(eq=False, slots=True, kw_only=True)
class CachedFeatures:
    """Features (V, F) in a file that are read through the cache; a task uses them instead of an array.

    Attributes:
        file: the file, or the partitions.
        table: index of the table in the cache.
        shared: the cache; None if rows are read when a batch is made.
        rank: number of this trainer among those that share the cache.
        patience_s: seconds to wait for rows.
    """

    file: StoredRows
    table: int = 0
    shared: SharedRows | None = None
    rank: int = 0
    patience_s: float = 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored features."""
        return self.file.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table, (V, F)."""
        return self.file.shape

    def gather(self, ids: Array, out: Array, run: int, step: int, workspace: Workspace) -> None:
        """Compute ``out[i] = table[ids[i]]`` for the batch of a step. In a rehearsal (run 0) and without a cache, rows are read from the file."""
        if self.shared is None or not run:
            self.file.gather(ids, out)
            return
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        slots = workspace.array("slots", len(ids), np.dtype(np.int32))
        own = self.file.own
        self.shared.find(self.table, ids, slots, own)
        rows = self.shared.rows(self.table).view(self.dtype).reshape(-1, *self.shape[1:])
        if own is None:
            gather_rows(rows, slots, out, workspace)
        else:
            gather_rows_of_two(rows, own.rows, slots, out, workspace)


class _Shared(NamedTuple):
    """A tuple of the objects that the ranks of a machine share.

    Attributes:
        rows: the cached rows.
        window: number of steps whose rows are requested from other machines at once, limited by the machine with the least memory.
        in_flight: maximum number of steps whose batches are with the workers.
        is_read: True if the graph's edges are read from files.
        budget: division of the memory, on the rank that fills the cache.
    """

    rows: SharedRows
    window: int
    in_flight: int
    is_read: bool
    budget: Budget | None = None


class FeatureCache:
    """The host feature cache of a loader.

    Attributes:
        rows: stores of the task that read through the cache, by name.
        shared: the cached rows in shared memory; None if ``prefetch_steps`` is 0.
        mapped: arrays that are still memory-mapped.
        filled: counts and times summed over the steps so far, on the rank whose process fills the cache.
        wait_s: seconds spent so far waiting for that process, without the wait for its start at the first step.
    """

    def __init__(self, task: SampleTask, memory: int | None, prefetch_steps: int, num_workers: int, worker_options: WorkerOptions) -> None:
        """Create the cache, or attach to that of another rank. All ranks call this; the process that fills it starts with the first run.

        Args:
            task: the loader's task. Its feature stores, mapped from files, are replaced by ``rows``.
            memory: bytes for cache and plan on each machine; None for the memory that is free there.
            prefetch_steps: number of future steps to plan; 0 for no cache.
            num_workers: number of worker processes of the loader.
            worker_options: queue options of the loader.

        Raises:
            InputError: features are not in a file, or there is too little memory.
        """
        files = feature_files(task.stores)
        meeting = meeting_of(task.schedule.world_size)
        parted = next((file for file in files.values() if isinstance(file, PartitionedFeatures)), None)
        if parted is not None:
            parted.meet(meeting)
        is_apart = parted is not None and len(parted.ranks) > 1
        if is_apart:  # no restarts: a replacement of the process would not know which rows were requested
            worker_options = replace(worker_options, timeout=max(worker_options.timeout, FETCH_S), max_restarts=0)
        self._patience_s = patience_s = worker_options.timeout * (worker_options.max_restarts + 1)
        self.rows: dict[str, CachedFeatures] = {
            name: CachedFeatures(file=file, table=i, patience_s=patience_s) for i, (name, file) in enumerate(files.items())
        }
        self.filled: Filled = Filled()
        self.wait_s: float = 0.0
        self._run, self._rank, self._is_warm = 0, 0, False
        self.shared: SharedRows | None = None
        self._pool: WorkerPool | None = None
        self._fill: CacheFillTask | None = None
        self._apart: PartitionedFeatures | None = None
        self._queue = replace(worker_options, prefetch_factor=IN_FLIGHT, buffer_dir=None)
        if prefetch_steps:
            self._share(task, memory, prefetch_steps, num_workers, worker_options, meeting, parted if is_apart else None)
        elif not is_apart and are_edges_read(task, memory, files):
            task.edges = edge_files(task)
        task.stores.update(self.rows)
        own = [file.own.rows for file in files.values() if file.own is not None]
        self.mapped: list[Array] = mapped_beside(task, self.rows) + own

    def _share(
        self,
        task: SampleTask,
        memory: int | None,
        prefetch_steps: int,
        num_workers: int,
        worker_options: WorkerOptions,
        meeting: Meeting | None,
        apart: PartitionedFeatures | None,
    ) -> None:
        schedule, files = task.schedule, {name: rows.file for name, rows in self.rows.items()}
        columns = own_columns_of(task, apart)
        ranks = (
            _sharing(meeting, [machine(), *(file.path for file in files.values()), memory, prefetch_steps]) if meeting else [schedule.rank]
        )

        def make() -> _Shared:
            if apart is None and are_edges_read(task, memory, files):
                task.edges = edge_files(task)
            names, is_read = [*files, *held_whole(task.stores, files)], task.edges is not None
            available, said = (memory, "") if memory else memory_left(task, names, num_workers, worker_options, len(ranks))
            steps = prefetch_steps // (WINDOWS if columns is None else PARTED_WINDOWS) or 1
            messages = None if apart is None else Messages.of(task, apart, ranks, columns is None, steps)
            share = EDGE_SHARE if is_read else SAMPLE_SHARE if columns is None else 0
            budget = budget_of(task.stores, files, available, share, memory is None, messages)
            tables = budget.tables()
            log_budget(said, budget, tables, prefetch_steps)
            in_flight = steps_in_flight(task, budget.of_samples // HANDED_SHARE, len(ranks)) if is_read else IN_FLIGHT
            window = messages.window(available) if messages else 1
            return _Shared(SharedRows.make(tables, len(ranks)), window, in_flight, is_read, budget)

        made = _made_or_found(make, schedule.rank, ranks, meeting)
        self.shared, self._rank = made.rows, ranks.index(schedule.rank)
        for rows in self.rows.values():
            rows.shared, rows.rank = self.shared, self._rank
        if made.is_read:
            task.edges = edge_files(task)
        num_boxes = made.in_flight if columns is None else prefetch_steps + 2 * made.window
        boxes, ahead = message_slots(num_boxes, schedule.rank, ranks, meeting), None
        task.receiver = BatchReceiver(boxes=boxes[self._rank], shared=self.shared, rank=self._rank, patience_s=self._patience_s)
        if columns is not None:
            schedules = [schedule.for_rank(rank) for rank in ranks]
            ahead = DistributedPrefetchSampler(sampler=task.sampler, columns=columns, schedules=schedules, boxes=boxes)
        if schedule.rank == ranks[0]:
            self._apart = apart
            numbers = {name: own.table for name, own in self.rows.items()}
            tasks = [replace(task, stores=numbers, schedule=schedule.for_rank(rank), workspace=Workspace()) for rank in ranks]
            self._fill = self._filler(tasks, made, boxes, ahead, prefetch_steps)

    def _filler(
        self,
        tasks: list[SampleTask],
        made: _Shared,
        boxes: list[list[SharedMessageSlot]],
        ahead: DistributedPrefetchSampler | None,
        prefetch_steps: int,
    ) -> CacheFillTask:
        """Return the task that fills the cache, for the ``tasks`` of all ranks that share it."""
        files, budget = [rows.file for rows in self.rows.values()], made.budget
        samples = ahead or step_accesses(tasks, len(files), boxes, budget.of_samples if budget else 0)
        options: dict[str, Any] = {
            "shared": made.rows, "files": files, "samples": samples, "num_steps": tasks[0].schedule.num_steps,
            "prefetch_steps": prefetch_steps, "budget": budget,
        }  # fmt: skip
        return CacheFillTask(**options) if self._apart is None else DistributedCacheFillTask(window=made.window, ahead=ahead, **options)

    def run(self, batches: Callable[[int, range], Iterator[LoaderBatch]], epoch: int, steps: range) -> Iterator[LoaderBatch]:
        """Yield the batches of some steps, each after its rows have been cached.

        Args:
            batches: function that returns the batches; its arguments are run and epoch in one number (``run_and_epoch``), and the steps.
            epoch: the epoch.
            steps: the steps.
        """
        self._run += 1
        run, shared = self._run, self.shared
        if shared is not None:
            shared.begin(self._rank, run, steps)  # must precede all work on the run's steps
        if self._fill is not None and self._pool is None:
            if isinstance(self._fill, DistributedCacheFillTask) and self._apart is not None:
                self._fill.exchange = self._apart.links.machines(self._apart)
            self._pool = WorkerPool(self._fill, 1, self._queue)
        fills: Iterator[Batch] = repeat(({}, Filled())) if self._pool is None else self._pool.run(run_and_epoch(run, epoch), steps)
        made = batches(run_and_epoch(run, epoch), steps)
        for step in steps:
            begin = time.perf_counter()
            _, filled = next(fills)
            self.wait_s += time.perf_counter() - begin if self._is_warm else 0.0
            self.filled, self._is_warm = self.filled.plus(filled), True
            batch = next(made)
            if shared is not None:
                shared.take(self._rank, tag_of(run, step))
            yield batch
            del batch  # frees the batch's queue slot before the wait for the next batch

    def pids(self) -> list[int]:
        """Return the id of the process that fills the cache, on the rank that runs it, from the first batch until ``close()``; otherwise an empty list."""
        return [] if self._pool is None else self._pool.pids()

    @property
    def holds_all(self) -> bool:
        """True if the cache has space for all rows that are not in memory without it."""
        tables = [] if self.shared is None else self.shared.tables
        wanted = [num_elsewhere(rows.file) for rows in self.rows.values()]
        return bool(tables) and all(table.num_slots >= number for table, number in zip(tables, wanted, strict=True))

    def close(self) -> None:
        """End the process that fills the cache; the next run starts another."""
        if isinstance(self._fill, DistributedCacheFillTask):
            self._fill.exchange = None  # drops the last reference, which also ends the communication process of the exchange
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _sharing(meeting: Meeting, mine: list[Any]) -> list[int]:
    """Return in ascending order the ranks that share a cache with this rank: the ranks with an equal ``mine``."""
    told = meeting.exchange("which features it reads", mine)
    return [rank for rank, other in enumerate(told) if other == told[meeting.rank]]


def _made_or_found(make: Callable[[], _Shared], rank: int, ranks: list[int], meeting: Meeting | None) -> _Shared:
    """Return the objects that ``ranks`` share: the first rank creates them, the others attach to them."""
    made: _Shared | None = None
    told: dict[str, Any] = {}
    if rank == ranks[0]:
        try:
            made = make()
            told = {"where": made.rows.__reduce__()[1]} | {name: getattr(made, name) for name in ("window", "in_flight", "is_read")}
        except InputError as error:  # the other ranks must raise the error too
            told = {"failed": str(error)}
    of_all = meeting.exchange("where its cache of rows lies", told) if meeting else [told]
    found = of_all[ranks[0]] if meeting else told
    if "failed" in found:
        raise InputError(found["failed"])
    made = made or _Shared(SharedRows(*found["where"]), found["window"], found["in_flight"], found["is_read"])
    return made._replace(window=min(each["window"] for each in of_all if "window" in each))


def cache_options(task: SampleTask, memory: str | None, prefetch_steps: int | None) -> dict[str, Any]:
    """Return the checked options of a ``FeatureCache``; none without ``feature_cache``, which is "auto" for partitioned features by default.

    Raises:
        InputError: an option is out of range, or too small for the first step; the data set, device or schedule cannot be used with the cache.
    """
    parted = [store for store in task.stores.values() if isinstance(store, PartitionedFeatures)]
    if memory is None and not all(isinstance(store, np.ndarray) for store in task.stores.values()):
        memory = "auto"
    if memory is None:
        if prefetch_steps is not None:
            raise InputError(
                f"prefetch_steps is {prefetch_steps} without feature_cache, whose option it is; give feature_cache, or leave it out"
            )
        return {}
    num_bytes = memory_bytes(memory)
    if prefetch_steps is not None and prefetch_steps < 0:
        raise InputError(f"prefetch_steps is {prefetch_steps}: must be a number of steps, or 0; give 0 or more")
    if (device := task.workspace.device) != "cpu":
        raise InputError(
            f'feature_cache is {memory} with device="{device}": the feature cache needs a sampler on the CPU; set device="cpu"'
        )
    if not feature_files(task.stores) or not isinstance(task.schedule, Schedule):
        raise InputError(
            f"feature_cache is {memory}: it needs features, and batches that are not split into chunks of a pipeline; leave it out"
        )
    if task.sampler.state() and prefetch_steps != 0:
        _log.warning(
            "feature_cache: batches of %s depend on the training, so their rows cannot be read ahead and are not cached; set prefetch_steps to 0",
            type(task.sampler).__name__,
        )
        prefetch_steps = 0
    if prefetch_steps == 0 and not all(store.is_whole for store in parted):
        raise InputError(
            f"prefetch_steps is 0 (or {type(task.sampler).__name__} needs it) with partitioned features: rows of other machines must be requested ahead; "
            "give a prefetch_steps, take another sampler, or copy all partitions to one machine"
        )
    if isinstance(task.graph, PartitionedGraph):
        check_alone(task.sampler, task.graph)
    for store in parted if task.schedule.world_size == 1 else []:  # several ranks exchange first on how many machines they are
        store.check_alone()
    default = PARTED_LOOKAHEAD if isinstance(task.graph, PartitionedGraph) else LOOKAHEAD
    if num_bytes is not None and prefetch_steps != 0 and not parted and task.schedule.num_steps:
        _check_first_step(task, num_bytes)
    return {"memory": num_bytes, "prefetch_steps": default if prefetch_steps is None else prefetch_steps}


def _check_first_step(task: SampleTask, memory: int) -> None:
    """Raise InputError if memory is too small for this rank's first step. Other ranks and steps are checked when they are sampled."""
    files = feature_files(task.stores)
    edges = edge_files(task) if are_edges_read(task, memory, files, is_said=False) else None
    alone = replace(task, stores={name: i for i, name in enumerate(files)}, workspace=Workspace(), edges=edges)
    rows = StepAccesses(tasks=[alone], num_tables=len(files))(0, 0)
    budget_of(task.stores, files, memory, EDGE_SHARE if edges else SAMPLE_SHARE).check(dict(zip(files, map(len, rows), strict=True)))
