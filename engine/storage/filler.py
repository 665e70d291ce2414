"""What the process does that fills a cache of rows: a task for a ``WorkerPool`` of one, whose batches are steps that are ready.

The pool brings all that such a process needs: it ends with its trainer, is replaced when it dies or stops, and what goes wrong in it is raised
where the trainer waits for the step. A successor begins with an empty cache: that costs reads, and changes no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.plan import RowPlan
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.kernels.shared.philox import MAX_EPOCH


class Filled(NamedTuple):
    """What a step took.

    Attributes:
        num_used: distinct rows that its batches use, over all ranks.
        num_missed: those of them that had to be read.
        num_reads: reads of the device for them.
        num_bytes: their bytes.
    """

    num_used: int = 0
    num_missed: int = 0
    num_reads: int = 0
    num_bytes: int = 0


def run_and_epoch(run: int, epoch: int) -> int:
    """Both in the number that a task gets as its epoch: an epoch has 20 bits, and the run stands above them."""
    return run * MAX_EPOCH + epoch


@dataclass(eq=False, kw_only=True)
class FillTask:
    """Fills a cache for one step after another, of as many epochs as there are. It is a ``hoptrain.engine.queue.worker.Task``.

    Attributes:
        shared: the cache.
        file: the table.
        rows_of: of an epoch and a step the distinct rows that it uses, ascending; a pure function.
        num_steps: steps of an epoch.
        lookahead: of the plan.
        most_foreseen: of the plan.
    """

    shared: SharedRows
    file: FileRows
    rows_of: Callable[[int, int], Array]
    num_steps: int
    lookahead: int
    most_foreseen: int | None = None
    _plan: RowPlan | None = None
    _due: tuple[int, int] = (0, 0)
    _later: Iterator[tuple[int, int]] = field(default_factory=lambda: iter(()))

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Filled:
        """See that the rows of a step are there; ``epoch`` has its run (``run_and_epoch``). There are no arrays."""
        allocate([])
        run, epoch = divmod(epoch, MAX_EPOCH)
        tag = tag_of(run, step)
        if tag <= self.shared.ready:  # a predecessor did it, and did not come to say so
            return Filled()
        plan = self._plan_for(epoch, step)
        reads = plan.next(tag)
        self.shared.wait_until_taken(reads.after)
        self.shared.clear(reads.slots)
        before = self.file.num_reads, self.file.num_bytes
        self.file.read(reads.rows, reads.slots, self.shared.arrays["rows"], meanwhile=lambda: self._foresee(plan, plan.wanted))
        self.shared.publish(tag, reads.rows, reads.slots)
        self._due = (epoch, step + 1) if step + 1 < self.num_steps else (epoch + 1, 0)
        return Filled(reads.num_used, len(reads.rows), self.file.num_reads - before[0], self.file.num_bytes - before[1])

    def _plan_for(self, epoch: int, step: int) -> RowPlan:
        """The plan, of which the step is the next one."""
        if self._plan is None:
            self.shared.wait_until_taken(self.shared.ready)  # what a predecessor gave to readers
            self._plan = RowPlan(self.shared.arrays["slot_of"], self.shared.num_slots, self.lookahead, self.most_foreseen)
        if (epoch, step) != self._due or not self._plan.num_known:
            self._plan.forget()
            self._later = self._steps_from(epoch, step)
            self._foresee(self._plan, 1)
        return self._plan

    def _foresee(self, plan: RowPlan, number: int) -> None:
        for _, (epoch, step) in zip(range(number), self._later, strict=False):
            plan.foresee(self.rows_of(epoch, step))

    def _steps_from(self, epoch: int, step: int) -> Iterator[tuple[int, int]]:
        for later in range(epoch, MAX_EPOCH):
            yield from ((later, each) for each in range(step if later == epoch else 0, self.num_steps))
