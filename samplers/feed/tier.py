"""Features that are larger than memory, for a loader: what reads their rows for a batch, and what has them read before.

A batch is a pure function of its address, so the process that fills the cache (``hoptrain.engine.storage``) samples the batches to come as well, as far
ahead as it looks, for the sake of their vertices alone; the loader samples them again when it makes them. Of the batches of all ranks of a
machine it makes one plan. Batches are those that features in memory would give.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from hoptrain.engine import Dataset, InputError, QueueOptions, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import codes_of
from hoptrain.engine.placement.hot_rows import parsed_size
from hoptrain.engine.placement.meeting import Meeting, meeting_of
from hoptrain.engine.placement.one_copy import machine
from hoptrain.engine.queue.pool import Batch, WorkerPool
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.filler import Filled, FillTask, run_and_epoch
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, SharedRows, slots_for, tag_of
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.feed.gather import gather_rows
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.scratch.workspace import Workspace

_log = logging.getLogger(__name__)

LOOKAHEAD = 256
"""Steps, where nothing else is said: what is foreseen is limited by memory as well."""
_AHEAD = 4
"""Steps whose rows may be ready beyond those that sampler processes can have begun."""
_FORESEEN_BYTES = 8
"""Of an access: its row, and its next use."""


@dataclass(eq=False, slots=True, kw_only=True)
class TierRows:
    """Features in a file, in the place of an array (V, F).

    Attributes:
        file: the file.
        shared: the cache; None where each batch's rows are read when it is made.
        rank: number of this trainer among those that share the cache.
        patience_s: how long to wait for rows.
    """

    file: FileRows
    shared: SharedRows | None = None
    rank: int = 0
    patience_s: float = 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the table."""
        return self.file.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """(V, F)."""
        return self.file.shape

    def gather(self, ids: Array, out: Array, run: int, step: int, workspace: Workspace) -> None:
        """``out[i] = table[ids[i]]`` for the batch of a step; in run 0, which is none, and without a cache, straight from the file."""
        if self.shared is None or not run:
            rows, first, place = np.unique(ids, return_index=True, return_inverse=True)
            as_bytes = out.view(np.uint8).reshape(len(ids), self.file.row_bytes)
            self.file.read(rows, first, as_bytes)
            again = np.flatnonzero(first[place] != np.arange(len(ids)))
            as_bytes[again] = as_bytes[first[place[again]]]
            return
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        slots = workspace.array("slots", len(ids), np.dtype(np.int32))
        self.shared.find(ids, slots)
        gather_rows(self.shared.arrays["rows"].view(self.dtype).reshape(-1, *self.shape[1:]), slots, out, workspace)


@dataclass(eq=False, slots=True, kw_only=True)
class StepRows:
    """Which rows a step uses: those of the batches of all ranks that share a cache.

    Attributes:
        graph: what is sampled.
        sampler: the algorithm, prepared.
        schedules: of the ranks.
        workspace: of the process that asks.
    """

    graph: Any
    sampler: Sampler[Any, Any]
    schedules: Sequence[Schedule]
    workspace: Workspace

    def __call__(self, epoch: int, step: int) -> Array:
        """The distinct rows, ascending, (B,)."""
        ids = np.sort(np.concatenate([self._of(schedule, epoch, step) for schedule in self.schedules]))
        return ids[np.concatenate([[True], ids[1:] != ids[:-1]])] if len(ids) else ids

    def _of(self, schedule: Schedule, epoch: int, step: int) -> Array:
        address = schedule.address(epoch, step)._asdict()
        batch = self.sampler.sample(self.graph, schedule.batch_items(epoch, step), **address, workspace=self.workspace)
        return np.array(batch.row_ids()["x"])  # the next batch may use its memory


class Tier:
    """A loader's features beyond memory.

    Attributes:
        rows: what a task takes them from.
        filled: sums over the steps so far, on the rank whose process fills the cache.
    """

    def __init__(self, task: SampleTask, memory: int, lookahead: int, num_workers: int, queue: QueueOptions) -> None:
        """Make or find the cache; the process that fills it starts with the first run. All ranks of the run call this.

        Args:
            task: the loader's, with the features in ``stores``, mapped from a file.
            memory: bytes for cache and plan on each machine.
            lookahead: steps; 0 for no cache.
            num_workers: sampler processes.
            queue: of the loader.

        Raises:
            InputError: no file, or too little memory.
        """
        self.rows = TierRows(file=FileRows.of(task.stores["x"], "features"), patience_s=queue.stall_timeout * (queue.max_restarts + 1))
        self.filled, self._run = Filled(), 0
        self._pool: WorkerPool | None = None
        self._fill: FillTask | None = None
        self._queue = replace(queue, prefetch=num_workers * (queue.prefetch + 1) + _AHEAD, slots_dir=None)
        if lookahead:
            self._share(task, memory, lookahead)

    def _share(self, task: SampleTask, memory: int, lookahead: int) -> None:
        file, schedule = self.rows.file, task.schedule
        slots = slots_for(memory, file.shape[0], file.row_bytes)
        meeting = meeting_of(schedule.world_size)
        ranks = _sharing(meeting, [machine(), file.path, memory, lookahead]) if meeting else [schedule.rank]
        layout = (file.shape[0], slots, file.row_bytes, len(ranks))
        shared = _shared(layout, schedule.rank, ranks, meeting)
        self.rows.shared, self.rows.rank = shared, ranks.index(schedule.rank)
        if self.rows.rank == 0:
            rows_of = StepRows(
                graph=task.graph,
                sampler=task.sampler,
                schedules=[replace(schedule, rank=rank) for rank in ranks],
                workspace=Workspace(),
            )
            self._fill = FillTask(
                shared=shared,
                file=file,
                rows_of=rows_of,
                num_steps=schedule.num_steps,
                lookahead=lookahead,
                most_foreseen=memory // FORESEEN_SHARE // _FORESEEN_BYTES,
            )

    def run(self, batches: Callable[[int, range], Iterator[Batch]], epoch: int, steps: range) -> Iterator[Batch]:
        """The batches of some steps, each once its rows are there.

        Args:
            batches: makes them; it takes run and epoch as one number (``run_and_epoch``).
            epoch: the epoch.
            steps: the steps.
        """
        self._run += 1
        run, shared = self._run, self.rows.shared
        if shared is not None:
            shared.take(self.rows.rank, tag_of(run, -1))  # before anybody is asked for a step of it
        if self._fill is not None and self._pool is None:
            self._pool = WorkerPool(self._fill, 1, self._queue)
        fills: Iterator[Batch] = repeat(({}, Filled())) if self._pool is None else self._pool.run(run_and_epoch(run, epoch), steps)
        made = batches(run_and_epoch(run, epoch), steps)
        for step in steps:
            _, filled = next(fills)
            self.filled = Filled(*(a + b for a, b in zip(self.filled, filled, strict=True)))
            batch = next(made)
            if shared is not None:
                shared.take(self.rows.rank, tag_of(run, step))
            yield batch
            del batch  # so that the slot is free before the wait for the next one

    def close(self) -> None:
        """End the process that fills the cache; the next run starts another."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _sharing(meeting: Meeting, mine: list[Any]) -> list[int]:
    """The ranks that share a cache with this one, in order: those that say the same."""
    told = meeting.exchange("which features it reads", mine)
    return [rank for rank, other in enumerate(told) if other == told[meeting.rank]]


def _shared(layout: tuple[int, int, int, int], rank: int, ranks: list[int], meeting: Meeting | None) -> SharedRows:
    """The cache of ``ranks``: the first of them makes it, the others find it."""
    made, told = None, {}
    if rank == ranks[0]:
        try:
            made = SharedRows.make(*layout)
            told = {"path": made.path}
        except InputError as error:  # the others have to hear of it
            told = {"failed": str(error)}
    found: dict[str, str] = meeting.exchange("where its cache of rows lies", told)[ranks[0]] if meeting else told
    if "failed" in found:
        raise InputError(found["failed"])
    return made or SharedRows(found["path"], *layout)


def tier_options(
    data: Any, sampler: Sampler[Any, Any], schedule: Any, device: str, memory: str | None, lookahead: int | None
) -> dict[str, int]:
    """The options of a ``Tier``, none without ``memory``.

    Raises:
        InputError: a size or a number that cannot be; a data set, a device or a schedule that the tier does not serve.
    """
    if memory is None:
        if lookahead is not None:
            raise InputError(
                f"lookahead is {lookahead} without memory: it tells how far ahead its rows are known; give memory, or leave it out"
            )
        return {}
    share, num_bytes = parsed_size(memory, "memory")
    if share:
        raise InputError(f"memory is {memory}: it is bytes with their unit; give for instance 8GiB")
    if lookahead is not None and lookahead < 0:
        raise InputError(f"lookahead is {lookahead}: it is a number of steps, or 0; correct it")
    if device != "cpu":
        raise InputError(f'memory is {memory} with device="{device}": the host reads the features from the disk; sample on the cpu')
    if not isinstance(data, Dataset) or data.x is None or not isinstance(schedule, Schedule):
        raise InputError(
            f"memory is {memory}: it is for a plain graph with features, in batches that are not cut up in a pipeline; leave it out"
        )
    FileRows.of(codes_of(data.x), "features")
    if sampler.state() and lookahead != 0:
        _log.warning(
            "%s draws by what it learns in training: its rows are read when a batch is made, by lookahead 0", type(sampler).__name__
        )
        lookahead = 0
    return {"memory": num_bytes, "lookahead": LOOKAHEAD if lookahead is None else lookahead}
