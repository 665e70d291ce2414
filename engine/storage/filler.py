"""What the process does that fills a cache of rows: a task for a ``WorkerPool`` of one, whose batches are steps that are ready.

The pool brings all that such a process needs: it ends with its trainer, is replaced when it dies or stops, and what goes wrong in it is raised
where the trainer waits for the step. A successor begins with an empty cache: that costs reads, and changes no batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple, Protocol, TypeAlias, cast

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.file_rows import StoredRows
from hoptrain.engine.storage.plan import IN_FLIGHT, RowPlan, StepReads, in_order, plan_together
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, SharedRows, tag_of
from hoptrain.kernels.shared.philox import MAX_EPOCH

FORESEEN_BYTES = 8
"""Of an access: its row, and its next use."""


class Filled(NamedTuple):
    """What a step took, and those that were read with it; nothing where it was read with another.

    Attributes:
        num_used: distinct rows that its batches use, over all ranks and tables, but for those of a machine's own part.
        num_missed: those of them that had to be read.
        num_reads: reads of the device for them.
        num_bytes: their bytes.
        read_s: seconds for which nothing was done but to wait for these reads.
        work_s: seconds of all other work for it: sampling and planning.
        num_fetched: rows that came from other machines.
        num_rounds: rounds in which they came.
        num_sent: bytes that this machine sent in these.
        fetch_s: seconds of the rounds.
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
        """The sum of both."""
        return Filled(*map(add, self, other))

    def minus(self, other: Filled) -> Filled:
        """What came since ``other``."""
        return Filled(*map(sub, self, other))


Planned: TypeAlias = tuple[float, Filled, list[list[StepReads]]]
"""Seconds that trainers were waited for, what came from other machines, and of each table the reads of the steps that are read now."""


class Topology(Protocol):
    """Samples the steps to come from a graph that lies in a file, many together, and hands each over when its rows are planned."""

    @property
    def num_in_flight(self) -> int:
        """Steps that may be handed over at once."""

    @property
    def is_full(self) -> bool:
        """Whether no more steps should be foreseen for now."""

    def rows_of_next(self, later: Iterator[tuple[int, int]]) -> list[Array] | None:
        """The rows of the next step, of each table; ``later`` are the epochs and steps to come, None behind the last one."""

    def hand_over(self, tag: int, landed: int) -> None:
        """Hand over what sampler processes need of the next step; trainers have taken the steps up to ``landed``."""

    def forget(self) -> None:
        """Other steps come than those foreseen."""

    def counted(self) -> Filled:
        """What reading took since the last call."""


def run_and_epoch(run: int, epoch: int) -> int:
    """Both in the number that a task gets as its epoch: an epoch has 20 bits, and the run stands above them."""
    return run * MAX_EPOCH + epoch


@dataclass(eq=False, kw_only=True)
class FillTask:
    """Fills a cache for one step after another, of as many epochs as there are. It is a ``hoptrain.engine.queue.worker.Task``.

    Attributes:
        shared: the cache.
        files: the tables.
        rows_of: of an epoch and a step the distinct rows of each table that it uses, ascending; a pure function.
        num_steps: steps of an epoch.
        prefetch_steps: of the plans.
        topology: samples in the place of ``rows_of``, where the graph is larger than memory.
        budget: the cache's, which says what is missing where a step's rows have no room.
    """

    shared: SharedRows
    files: Sequence[StoredRows]
    rows_of: Callable[[int, int], Sequence[Array]]
    num_steps: int
    prefetch_steps: int
    topology: Topology | None = None
    budget: Budget | None = None
    _plans: list[RowPlan] = field(default_factory=list)
    _due: tuple[int, int] = (0, 0)
    _run: int = 0
    _later: Iterator[tuple[int, int]] = field(default_factory=lambda: iter(()))

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Filled:
        """See that the rows of a step are there; ``epoch`` has its run (``run_and_epoch``). There are no arrays."""
        allocate([])
        run, epoch = divmod(epoch, MAX_EPOCH)
        tag = tag_of(run, step)
        if tag <= self.shared.ready:  # it was read with one before, or by a predecessor that did not come to say so
            return Filled()
        if run != self._run and self._hands_over:
            self.shared.wait_until_taken(tag_of(run, -1))  # a place of its first steps may still hold a sample of the run before
        begin = time.perf_counter()
        self._look_ahead(run, epoch, step)
        planned = self._plan(run, epoch, step)
        if planned is None:  # this run was left: wait until it is here as well
            self.shared.wait_until_taken(tag_of(run + 1, -1))
            return Filled()
        waited, fetched, reads = planned
        filled = fetched.plus(Filled(work_s=time.perf_counter() - begin - waited - fetched.fetch_s))
        for table, own in enumerate(reads):
            filled = filled.plus(self._fill(table, own))
        if self.topology is not None:
            counted = self.topology.counted()
            filled = filled.plus(counted)._replace(work_s=filled.work_s - counted.read_s)
        last = step + len(reads[0]) - 1
        self.shared.publish(tag_of(run, last))
        self._due = (epoch, last + 1) if last + 1 < self.num_steps else (epoch + 1, 0)
        return filled

    @property
    def _hands_over(self) -> bool:
        """Whether samples of steps are handed over, in places that are used again."""
        return self.topology is not None

    def _plan(self, run: int, epoch: int, step: int) -> Planned | None:
        """Plan a step, and those after it in its run that are read with it; None where the run was left."""
        waits = [0.0]
        tags = range(tag_of(run, step), tag_of(run, max(step, self.shared.last_step(run))) + 1)
        coming = iter(tags)

        def wait(landed: int) -> None:
            waits.append(self._wait_until_taken(landed))
            if self.topology is not None:
                self.topology.hand_over(next(coming), landed)

        reads = plan_together(self._plans, tags, wait)
        return sum(waits), Filled(), reads

    def _wait_until_taken(self, tag: int) -> float:
        """The seconds that it took."""
        begin = time.perf_counter()
        self.shared.wait_until_taken(tag)
        return time.perf_counter() - begin

    def _fill(self, table: int, reads: Sequence[StepReads]) -> Filled:
        """Read the rows of a table for some steps, and look ahead meanwhile."""
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
        """Look as far ahead as the plans of ``num_steps`` steps will need, while their rows are read."""
        for _ in range(num_steps):
            self._foresee(self._wanted)

    def _look_ahead(self, run: int, epoch: int, step: int) -> None:
        """See that the plans' next step is this one."""
        if not self._plans:
            self.shared.wait_until_taken(self.shared.ready)  # what a predecessor gave to readers
            self._plans = [self._new_plan(table) for table in range(len(self.shared.tables))]
            self._later = self._steps_from(epoch, step)
        elif not self._is_due(run, epoch, step):
            for plan in self._plans:
                plan.forget()
            if self.topology is not None:
                self.topology.forget()
            self._later = self._steps_from(epoch, step)
        self._run = run
        if not self._plans[0].num_known:
            self._foresee(1)

    def _is_due(self, run: int, epoch: int, step: int) -> bool:
        """Return whether the plans go on with this step."""
        return (epoch, step) == self._due

    def _new_plan(self, number: int) -> RowPlan:
        table = self.shared.tables[number]
        most = table.num_bytes // FORESEEN_SHARE // FORESEEN_BYTES
        in_flight = IN_FLIGHT if self.topology is None else self.topology.num_in_flight
        too_little = self._too_little if self.budget else None
        return RowPlan(self._slots_of_plan(number), table.num_slots, self.prefetch_steps, most, in_flight=in_flight, too_little=too_little)

    def _slots_of_plan(self, number: int) -> Array:
        """Return the array (V,) in which the plan of a table keeps where each row is."""
        return self.shared.slot_of(number)

    def _too_little(self) -> InputError:
        budget = cast(Budget, self.budget)
        return budget.too_little(dict(zip(budget.sizes, (plan.largest for plan in self._plans), strict=True)))

    @property
    def _wanted(self) -> int:
        """Steps that should be foreseen before the next ones are planned: as many as each plan has room for."""
        if self.topology is not None and self.topology.is_full:
            return int(not self._plans[0].num_known)
        return min(plan.wanted for plan in self._plans)

    def _foresee(self, number: int) -> None:
        for _ in range(number):
            for plan, rows in zip(self._plans, self._rows_of_next(), strict=False):  # none behind the last step that there can be
                plan.foresee(rows)

    def _rows_of_next(self) -> Sequence[Array]:
        if self.topology is not None:
            return self.topology.rows_of_next(self._later) or ()
        return next((self.rows_of(*at) for at in self._later), ())

    def _steps_from(self, epoch: int, step: int) -> Iterator[tuple[int, int]]:
        for later in range(epoch, MAX_EPOCH):
            yield from ((later, each) for each in range(step if later == epoch else 0, self.num_steps))
