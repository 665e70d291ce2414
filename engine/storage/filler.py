"""``CacheFillTask``, the task of the process that fills the host feature cache. For this task, a batch is a step whose rows have been cached.

A ``WorkerPool`` of one process runs the task. It ends the process with its trainer, replaces it if it dies or hangs, and raises its errors where the
trainer waits for the step. A replacement starts with an empty cache, which costs reads but changes no batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple, Protocol, TypeAlias, cast

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.file_rows import StoredRows
from hoptrain.engine.storage.plan import RowPlan, StepReads, in_order, plan_together
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, SharedRows, tag_of
from hoptrain.kernels.shared.philox import MAX_EPOCH

FORESEEN_BYTES = 8
"""Memory in bytes for a planned access: the index of the row, and the step of its next use."""


class Filled(NamedTuple):
    """Counts and times of filling the cache for a step. Steps that are read together are counted at the first of them; all values of the others are 0.

    Attributes:
        num_used: number of distinct rows that the batches use, over all ranks and tables, except for rows of a machine's own partition.
        num_missed: number of used rows that were not in the cache and had to be read.
        num_reads: number of reads from the device for these rows.
        num_bytes: number of bytes of these reads.
        read_s: seconds spent waiting for reads.
        work_s: seconds of all other work: sampling and planning.
        num_fetched: number of rows received from other machines.
        num_rounds: number of communication rounds in which these rows were received.
        num_sent: number of bytes that this machine sent in these rounds.
        fetch_s: duration of these rounds in seconds.
    """

    num_used: int = 0
    num_missed: int = 0
    num_reads: int = 0
    num_bytes: int = 0
    read_s: float = 0.0
    work_s: float = 0.0
    num_fetched: int = 0
    num_rounds: int = 0
    num_sent: int = 0
    fetch_s: float = 0.0

    def plus(self, other: Filled) -> Filled:
        """Return the sum of this object and ``other``, field by field."""
        return Filled(*map(add, self, other))

    def minus(self, other: Filled) -> Filled:
        """Return the difference between this object and an earlier one, ``other``, field by field."""
        return Filled(*map(sub, self, other))


Planned: TypeAlias = tuple[float, Filled, list[list[StepReads]]]
"""A tuple of the seconds spent waiting for trainers, the counts of rows from other machines, and for each table the reads of steps that were
planned together."""


class StepSampler(Protocol):
    """A sampler of future steps. It returns the rows that they use, and passes their batches to the workers, which need not sample them again."""

    @property
    def num_in_flight(self) -> int:
        """Maximum number of steps that workers have at the same time."""

    @property
    def is_full(self) -> bool:
        """True if no more steps should be sampled for now."""

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """Return the rows of the next step for each table, or None after the last step. ``later`` yields (epoch, step) of the steps that follow."""

    def publish(self, tag: int, landed: int) -> None:
        """Pass the batches of the next step to the workers; trainers have taken all steps up to the tag ``landed``."""

    def forget(self) -> None:
        """Drop all sampled steps, since another run begins."""

    def counted(self) -> Filled:
        """Return counts and times of reads since the last call."""


def run_and_epoch(run: int, epoch: int) -> int:
    """Return one number that encodes run and epoch, for the ``epoch`` argument of a task: the epoch in the lowest 20 bits, the run above them."""
    return run * MAX_EPOCH + epoch


@dataclass(eq=False, kw_only=True)
class CacheFillTask:
    """A ``hoptrain.engine.queue.worker.Task`` that fills the cache for one step after another, across epochs.

    Attributes:
        shared: the cache in shared memory.
        files: the tables whose rows are cached.
        samples: sampler of future steps.
        num_steps: number of steps of an epoch.
        prefetch_steps: number of future steps that the plans know.
        budget: division of the cache's memory, for the error message if the rows of a step do not fit.
    """

    shared: SharedRows
    files: Sequence[StoredRows]
    samples: StepSampler
    num_steps: int
    prefetch_steps: int
    budget: Budget | None = None
    _plans: list[RowPlan] = field(default_factory=list)
    _due: tuple[int, int] = (0, 0)
    _run: int = 0
    _later: Iterator[tuple[int, int]] = field(default_factory=lambda: iter(()))

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Filled:
        """Cache the rows that a step needs, and return the counts. ``epoch`` encodes run and epoch (``run_and_epoch``). ``allocate`` is not used."""
        allocate([])
        run, epoch = divmod(epoch, MAX_EPOCH)
        tag = tag_of(run, step)
        # the rows were read with an earlier step, or by an earlier process that died before it could report them
        if tag <= self.shared.ready:
            return Filled()
        if run != self._run:
            self.shared.wait_until_taken(tag_of(run, -1))  # slots for the first steps may still be used by batches of the previous run
        begin = time.perf_counter()
        self._look_ahead(run, epoch, step)
        planned = self._plan(run, epoch, step)
        if planned is None:  # the trainers have left this run: wait for the next one
            self.shared.wait_until_taken(tag_of(run + 1, -1))
            return Filled()
        waited, fetched, reads = planned
        filled = fetched.plus(Filled(work_s=time.perf_counter() - begin - waited - fetched.fetch_s))
        for table, own in enumerate(reads):
            filled = filled.plus(self._fill(table, own))
        counted = self.samples.counted()
        filled = filled.plus(counted)._replace(work_s=filled.work_s - counted.read_s)
        last = step + len(reads[0]) - 1
        self.shared.publish(tag_of(run, last))
        self._due = (epoch, last + 1) if last + 1 < self.num_steps else (epoch + 1, 0)
        return filled

    def _plan(self, run: int, epoch: int, step: int) -> Planned | None:
        """Plan a step and the steps that are read together with it. Return None if the trainers have left the run."""
        waits = [0.0]
        tags = range(tag_of(run, step), tag_of(run, max(step, self.shared.last_step(run))) + 1)
        coming = iter(tags)

        def wait(landed: int) -> None:
            waits.append(self._wait_until_taken(landed))
            self.samples.publish(next(coming), landed)

        reads = plan_together(self._plans, tags, wait)
        return sum(waits), Filled(), reads

    def _wait_until_taken(self, tag: int) -> float:
        """Wait until all trainers have taken a step, and return the seconds of the wait."""
        begin = time.perf_counter()
        self.shared.wait_until_taken(tag)
        return time.perf_counter() - begin

    def _fill(self, table: int, reads: Sequence[StepReads]) -> Filled:
        """Read the rows of a table for some steps, and sample further steps while the reads are in progress."""
        file, times = self.files[table], [time.perf_counter()]
        rows, slots = in_order(reads)

        def meanwhile() -> None:
            if table == 0:
                self._foresee_meanwhile(len(reads))
            times.append(time.perf_counter())

        before = file.num_reads, file.num_bytes
        self.shared.clear(table, slots)
        file.read(rows, slots, self.shared.rows(table), meanwhile)
        self.shared.put(table, rows, slots)
        begin, worked, end = *times, time.perf_counter()
        counts = sum(own.num_used for own in reads), len(rows), file.num_reads - before[0], file.num_bytes - before[1]
        return Filled(*counts, read_s=end - worked, work_s=worked - begin)

    def _foresee_meanwhile(self, num_steps: int) -> None:
        """While the rows of ``num_steps`` steps are read, sample further steps: for each step read, as many as the plans need."""
        for _ in range(num_steps):
            self._foresee(self._wanted)

    def _look_ahead(self, run: int, epoch: int, step: int) -> None:
        """Ensure that the plans continue with this step; if they do not, restart them."""
        if not self._plans or not self._is_due(run, epoch, step):
            for plan in self._plans:
                plan.forget()
            if not self._plans:
                self.shared.wait_until_taken(self.shared.ready)  # wait for steps that an earlier process has published
                self._plans = [self._new_plan(table) for table in range(len(self.shared.tables))]
            self.samples.forget()
            self._later = self._steps_from(epoch, step)
        self._run = run
        if not self._plans[0].num_known:
            self._foresee(1)

    def _is_due(self, run: int, epoch: int, step: int) -> bool:
        """Return whether the plans continue with this step."""
        return (epoch, step) == self._due

    def _new_plan(self, number: int) -> RowPlan:
        table = self.shared.tables[number]
        most = table.num_bytes // FORESEEN_SHARE // FORESEEN_BYTES
        in_flight, too_little = self.samples.num_in_flight, self._too_little if self.budget else None
        return RowPlan(self._slots_of_plan(number), table.num_slots, self.prefetch_steps, most, in_flight=in_flight, too_little=too_little)

    def _slots_of_plan(self, number: int) -> Array:
        """Return the array (V,) with the slot of each row of a table. The plan of the table updates this array."""
        return self.shared.slot_of(number)

    def _too_little(self) -> InputError:
        budget = cast(Budget, self.budget)
        return budget.too_little(dict(zip(budget.sizes, (plan.largest for plan in self._plans), strict=True)))

    @property
    def _wanted(self) -> int:
        """Number of steps to sample before the next steps are planned, limited by the memory of each plan."""
        if self.samples.is_full:
            return int(not self._plans[0].num_known)
        return min(plan.wanted for plan in self._plans)

    def _foresee(self, number: int) -> None:
        for _ in range(number):
            for plan, rows in zip(self._plans, self._rows_of_next(), strict=False):  # there are no rows after the last possible step
                plan.foresee(rows)

    def _rows_of_next(self) -> Sequence[Array]:
        return self.samples.rows_of_next(self._later) or ()

    def _steps_from(self, epoch: int, step: int) -> Iterator[tuple[int, int]]:
        for later in range(epoch, MAX_EPOCH):
            yield from ((later, each) for each in range(step if later == epoch else 0, self.num_steps))
