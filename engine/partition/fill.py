"""The cache-filling process for features on several machines: it requests the rows of a window of steps from other machines ahead of time.

Steps are planned two windows at a time, and executed one by one. A window ends with its run. If a run is left early, its remaining plan is discarded.

If the graph is partitioned too, machines sample together, ``prefetch_steps`` steps of a run ahead, so all of them have planned the same number of steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.rounds import WindowRows
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.partition.runs import LeftRunError, RunExchange
from hoptrain.engine.storage.filler import CacheFillTask, Filled, Planned, StepSampler
from hoptrain.engine.storage.plan import StepReads
from hoptrain.engine.storage.shared_rows import tag_of


class PrefetchSampler(StepSampler, Protocol):
    """A sampler that samples steps together with other machines, for a partitioned graph.

    Attributes:
        num_places: number of steps whose samples are kept at a time.
    """

    @property
    def num_places(self) -> int: ...  # noqa: D102

    def sample(self, run: int, epoch: int, steps: range, exchange: Exchange) -> None:
        """Sample a range of steps."""


@dataclass(eq=False, kw_only=True)
class DistributedCacheFillTask(CacheFillTask):
    """A task that fills a cache with rows from several machines. One of the cached tables is ``PartitionedFeatures``.

    Attributes:
        window: number of steps whose rows are requested from other machines at once.
        exchange: exchange among the machines, set before the first step is requested.
        ahead: ``samples`` if the graph is partitioned, so that machines must sample together; otherwise None.
    """

    window: int = 1
    exchange: Exchange | None = None
    ahead: PrefetchSampler | None = None
    _planned: deque[tuple[int, list[StepReads]]] = field(default_factory=deque)
    _first: int = 0
    _rounds: tuple[RunExchange, WindowRows] | None = None
    _sampled: int = 0
    _foreseen: int = 0

    def _plan(self, run: int, epoch: int, step: int) -> Planned | None:
        """Plan a step and fetch its rows from other machines if necessary. Return None if the other machines are in a later run."""
        if self._rounds is None:
            of_run = RunExchange(cast(Exchange, self.exchange))
            self._rounds = of_run, WindowRows(next(file for file in self.files if isinstance(file, PartitionedFeatures)), of_run)
        rounds, rows = self._rounds
        before, seconds, rounds.run = (rows.num_fetched, rounds.num_rounds, rounds.num_sent), 0.0, run
        if not self._planned:  # nothing is planned at the beginning of a run
            self._first = step
            rows.begin()
            starts = [step, step + self.window]
        else:
            starts = [step + self.window] if (step - self._first) % self.window == 0 else []
        try:
            for start in starts:
                seconds += self._sample(run, epoch, min(start + self.prefetch_steps, self.num_steps), rounds)
                wanted = self._plan_window(run, range(start, min(start + self.window, self.num_steps)))
                begin = time.perf_counter()
                rows.next(wanted)
                seconds += time.perf_counter() - begin
        except LeftRunError:
            return None
        fetched = Filled(
            num_fetched=rows.num_fetched - before[0],
            num_rounds=rounds.num_rounds - before[1],
            num_sent=rounds.num_sent - before[2],
            fetch_s=seconds,
        )
        landed, reads = self._planned.popleft()
        waited = self._wait_until_taken(landed)
        for table, own in enumerate(reads):
            self.shared.slot_of(table)[own.rows] = own.slots
        self.samples.publish(tag_of(run, step), landed)
        return waited, fetched, [[own] for own in reads]

    def _sample(self, run: int, epoch: int, last: int, exchange: Exchange) -> float:
        """Sample the steps before ``last`` if the graph is partitioned. Return the seconds that sampling took."""
        if self.ahead is None or last <= self._sampled:
            return 0.0
        if (overwritten := last - 1 - self.ahead.num_places) >= self._first:
            self.shared.wait_until_taken(tag_of(run, overwritten))
        begin = time.perf_counter()
        self.ahead.sample(run, epoch, range(self._sampled, last), exchange)
        self._sampled = last
        return time.perf_counter() - begin

    def _plan_window(self, run: int, steps: range) -> Array:
        """Plan steps without executing them. Return the rows of the partitioned table that they read, ascending."""
        table = next(i for i, file in enumerate(self.files) if isinstance(file, PartitionedFeatures))
        wanted = [np.empty(0, np.int32)]
        for step in steps:
            self._foresee(self._wanted)
            reads = [plan.next(tag_of(run, step)) for plan in self._plans]
            self._planned.append((max(plan.landed for plan in self._plans), reads))
            wanted.append(reads[table].rows)
        return np.unique(np.concatenate(wanted))

    def _foresee_meanwhile(self, num_steps: int) -> None:
        """Do nothing, because windows are planned when their rows are requested."""

    def _look_ahead(self, run: int, epoch: int, step: int) -> None:
        """Ensure that the plans continue with this step, or with the step after those already planned; if they do not, restart them."""
        if run != self._run and self._planned:
            self._planned.clear()
            self._plans.clear()
        if run != self._run and self.ahead is not None:
            self._sampled = self._foreseen = step
        super()._look_ahead(run, epoch, step)

    def _is_due(self, run: int, epoch: int, step: int) -> bool:
        return super()._is_due(run, epoch, step) and (self.ahead is None or run == self._run)

    def _slots_of_plan(self, number: int) -> Array:
        """Return a new array for the slots of rows. The cache's own array must not change before the planned steps are executed."""
        return np.empty(self.shared.tables[number].num_rows, np.int32)

    def _foresee(self, number: int) -> None:
        if self.ahead is not None:
            number = min(number, self._sampled - self._foreseen)
            self._foreseen += number
        super()._foresee(number)

    def _rows_of_next(self) -> Sequence[Array]:
        """Return, for each table, the rows of the next step that occupy slots of the cache."""
        return [file.elsewhere(rows) for file, rows in zip(self.files, super()._rows_of_next(), strict=False)]
