"""What the process does that fills a cache of rows: a task for a ``WorkerPool`` of one, whose batches are steps that are ready.

The pool brings all that such a process needs: it ends with its trainer, is replaced when it dies or stops, and what goes wrong in it is raised
where the trainer waits for the step. A successor begins with an empty cache: that costs reads, and changes no batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.plan import RowPlan, StepReads, in_order, plan_together
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, SharedRows, tag_of
from hoptrain.kernels.shared.philox import MAX_EPOCH

FORESEEN_BYTES = 8
"""Of an access: its row, and its next use."""


class Filled(NamedTuple):
    """What a step took, and those that were read with it; nothing where it was read with another.

    Attributes:
        num_used: distinct rows that its batches use, over all ranks and tables.
        num_missed: those of them that had to be read.
        num_reads: reads of the device for them.
        num_bytes: their bytes.
        read_s: seconds for which nothing was done but to wait for these reads.
        work_s: seconds of all other work for it: sampling and planning.
    """

    num_used: int = 0
    num_missed: int = 0
    num_reads: int = 0
    num_bytes: int = 0
    read_s: float = 0.0
    work_s: float = 0.0

    def plus(self, other: Filled) -> Filled:
        """The sum of both."""
        return Filled(*map(add, self, other))

    def minus(self, other: Filled) -> Filled:
        """What came since ``other``."""
        return Filled(*map(sub, self, other))


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
        lookahead: of the plans.
    """

    shared: SharedRows
    files: Sequence[FileRows]
    rows_of: Callable[[int, int], Sequence[Array]]
    num_steps: int
    lookahead: int
    _plans: list[RowPlan] = field(default_factory=list)
    _due: tuple[int, int] = (0, 0)
    _later: Iterator[tuple[int, int]] = field(default_factory=lambda: iter(()))

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Filled:
        """See that the rows of a step are there; ``epoch`` has its run (``run_and_epoch``). There are no arrays."""
        allocate([])
        run, epoch = divmod(epoch, MAX_EPOCH)
        tag = tag_of(run, step)
        if tag <= self.shared.ready:  # it was read with one before, or by a predecessor that did not come to say so
            return Filled()
        begin = time.perf_counter()
        self._look_ahead(epoch, step)
        waits: list[float] = []

        def wait(landed: int) -> None:
            start = time.perf_counter()
            self.shared.wait_until_taken(landed)
            waits.append(time.perf_counter() - start)

        last = max(step, self.shared.last_step(run))
        reads = plan_together(self._plans, range(tag, tag_of(run, last) + 1), wait)
        filled = Filled(work_s=time.perf_counter() - begin - sum(waits))
        for table, own in enumerate(reads):
            filled = filled.plus(self._fill(table, own))
        last = step + len(reads[0]) - 1
        self.shared.publish(tag_of(run, last))
        self._due = (epoch, last + 1) if last + 1 < self.num_steps else (epoch + 1, 0)
        return filled

    def _fill(self, table: int, reads: Sequence[StepReads]) -> Filled:
        """Read the rows of a table for some steps, and look ahead meanwhile."""
        file, times = self.files[table], [time.perf_counter()]
        rows, slots = in_order(reads)

        def meanwhile() -> None:
            if table == 0:
                for _ in reads:
                    self._foresee(self._wanted)
            times.append(time.perf_counter())

        before = file.num_reads, file.num_bytes
        self.shared.clear(table, slots)
        file.read(rows, slots, self.shared.rows(table), meanwhile)
        self.shared.put(table, rows, slots)
        begin, worked, end = *times, time.perf_counter()
        counts = sum(own.num_used for own in reads), len(rows), file.num_reads - before[0], file.num_bytes - before[1]
        return Filled(*counts, read_s=end - worked, work_s=worked - begin)

    def _look_ahead(self, epoch: int, step: int) -> None:
        """See that the plans' next step is this one."""
        if not self._plans:
            self.shared.wait_until_taken(self.shared.ready)  # what a predecessor gave to readers
            for i, table in enumerate(self.shared.tables):
                most = table.num_bytes // FORESEEN_SHARE // FORESEEN_BYTES
                self._plans.append(RowPlan(self.shared.slot_of(i), table.num_slots, self.lookahead, most))
        if (epoch, step) != self._due or not self._plans[0].num_known:
            for plan in self._plans:
                plan.forget()
            self._later = self._steps_from(epoch, step)
            self._foresee(1)

    @property
    def _wanted(self) -> int:
        """Steps that should be foreseen before the next ones are planned: as many as each plan has room for."""
        return min(plan.wanted for plan in self._plans)

    def _foresee(self, number: int) -> None:
        for _, (epoch, step) in zip(range(number), self._later, strict=False):
            for plan, rows in zip(self._plans, self.rows_of(epoch, step), strict=True):
                plan.foresee(rows)

    def _steps_from(self, epoch: int, step: int) -> Iterator[tuple[int, int]]:
        for later in range(epoch, MAX_EPOCH):
            yield from ((later, each) for each in range(step if later == epoch else 0, self.num_steps))
