"""``RowPlan``, which decides from the accesses of future steps which rows are read into which slots of the cache.

After a start phase, twice ``prefetch_steps`` future steps are known. The plan is recomputed whenever a quarter of its steps has been used, in time linear in
the known accesses and the slots. So a step is planned four times on average. In the start phase, two future steps are sampled for each step that is planned,
so that the first step does not wait until all are sampled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.errors import InputError
from hoptrain.kernels.cpu.storage import plan as kernels

IN_FLIGHT = 32
"""Maximum number of steps whose rows are in the cache at the same time, including the step being planned."""
_SHARE = 2
"""Steps in flight may use 1 / ``_SHARE`` of the slots and of the stored accesses. One or two steps may use all slots."""


class StepReads(NamedTuple):
    """The reads that a step needs.

    Attributes:
        rows: (M,) rows of the table to read, ascending.
        slots: (M,) int32, the slot of each row.
        num_used: number of rows that the step uses, including those that are cached already.
    """

    rows: Array
    slots: Array
    num_used: int


class _Step(NamedTuple):
    """A step in flight, with its tag (a step number that increases across epochs), its rows (B,) and the next use of each row (B,)."""

    tag: int
    rows: Array
    nexts: Array


class RowPlan:
    """A plan of reads and evictions, step by step; the algorithm is in ``hoptrain.kernels.cpu.storage.plan``.

    Attributes:
        wanted: number of future steps to add before the next step is planned.
        landed: tag of the last step that has left the flight window; 0 for none.
    """

    def __init__(
        self,
        slot_of: Array,
        num_slots: int,
        prefetch_steps: int,
        most_foreseen: int | None = None,
        *,
        in_flight: int = IN_FLIGHT,
        too_little: Callable[[], InputError] | None = None,
    ) -> None:
        """Create the plan of an empty cache.

        Args:
            slot_of: (V,) int32; updated with the planned slot of each row, -1 for none.
            num_slots: number of slots N.
            prefetch_steps: minimum number of future steps to know, at least 1.
            most_foreseen: maximum number of accesses to store, including those of steps in flight; one step may always be stored. By default unlimited.
            in_flight: maximum number of steps in flight, at least 1.
            too_little: function that returns the exception for a step whose rows do not fit.
        """
        self._lookahead, self._most, self._too_little = prefetch_steps, most_foreseen or 2**63, too_little
        self._first_use = np.full(len(slot_of), -1, np.int32)
        self._rows, self._nexts = deque[Array](), deque[Array]()
        self._num_foreseen, self._num_rows_in_flight = 0, 0
        self._most_in_flight, self._in_flight = in_flight, deque[_Step]()
        self._step, self._first, self.landed = 0, 0, 0
        self._next_uses = np.zeros(
            2 * prefetch_steps + 1, np.int64
        )  # number of rows in flight by step of next use, counted from _first; last, rows without a next use
        slot_of[:] = -1
        self._cache = kernels.CacheTables(
            slot_of=slot_of,
            uses=np.zeros(len(slot_of), np.uint16),
            row_of=np.empty(num_slots, id_dtype(len(slot_of))),
            below=np.empty(num_slots, np.int32),
            heads=np.empty(2 * prefetch_steps + kernels.NUM_CLASSES, np.int32),
            filled=np.zeros(1, np.int64),
        )

    @property
    def num_known(self) -> int:
        """Number of known future steps."""
        return len(self._rows)

    @property
    def largest(self) -> int:
        """Number of rows of the largest future step."""
        return max(map(len, self._rows), default=0)

    @property
    def middle(self) -> int:
        """Tag of the middle step in flight (the earlier of two); ``landed`` if at most one step is in flight."""
        half = len(self._in_flight) // 2
        return self._in_flight[half - 1].tag if half else self.landed

    @property
    def wanted(self) -> int:
        """Number of future steps to add: two for each planned step until twice ``prefetch_steps`` are known, and 0 while memory is full."""
        known = len(self._rows)
        return int(not known) if self._num_foreseen >= self._most else min(2, 2 * self._lookahead - known)

    def foresee(self, rows: Array) -> None:
        """Append a step to the known future steps; ``rows`` (B,) are its distinct rows, ascending."""
        self._rows.append(rows)
        self._num_foreseen += len(rows)
        kernels.count_uses(rows, self._cache.uses)

    def forget(self) -> None:
        """Drop all future steps and steps in flight, since other steps follow."""
        self._step += len(self._rows)  # makes old step numbers in first_use count as past
        if self._in_flight:
            self.landed = self._in_flight[-1].tag
        for steps in (self._rows, self._nexts, self._in_flight):
            steps.clear()
        self._num_foreseen, self._num_rows_in_flight = 0, 0
        self._next_uses[:] = 0

    def free_slots(self) -> int:
        """Free slots for the next step by ending the flight of earlier steps. Return ``landed``: ``next`` may overwrite rows of steps up to this tag.

        Raises:
            InputError: the rows of a step do not fit.
        """
        if 4 * len(self._nexts) <= 3 * len(self._rows):
            self._plan_anew()
        while self._in_flight and not self._next_fits():
            landed = self._in_flight.popleft()
            kernels.land(self._cache, landed.rows, landed.nexts, self._step, self._first)
            kernels.count_next_uses(landed.nexts, self._first, -1, self._next_uses)
            self.landed = landed.tag
            self._num_foreseen -= len(landed.rows)
            self._num_rows_in_flight -= len(landed.rows)
        return self.landed

    def next(self, tag: int) -> StepReads:
        """Plan the first future step and return its reads. ``tag`` is the step's number across epochs; it must be positive and above the previous tag."""
        self.free_slots()
        rows = self._rows.popleft()
        self._in_flight.append(_Step(tag, rows, self._nexts.popleft()))
        self._num_rows_in_flight += len(rows)
        kernels.count_next_uses(self._in_flight[-1].nexts, self._first, 1, self._next_uses)
        out = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int32)
        number = kernels.plan_step(self._cache, rows, self._step, self._first, *out)
        self._step += 1
        return StepReads(out[0][:number], out[1][:number], len(rows))

    def _next_fits(self) -> bool:
        number, capacity = len(self._in_flight) + 1, len(self._cache.row_of)
        together = len(self._rows[0]) + int(self._next_uses[self._step - self._first + 1 :].sum())
        if number <= 2:
            return number <= self._most_in_flight and together <= capacity
        is_stored = _SHARE * self._num_rows_in_flight <= self._most
        return number <= self._most_in_flight and _SHARE * together <= capacity and is_stored

    def _plan_anew(self) -> None:
        """Recompute the plan from the accesses of all known steps."""
        num_slots = len(self._cache.row_of)
        if self.largest > num_slots:
            raise (
                self._too_little()
                if self._too_little
                else InputError(f"{num_slots:,} slots: a step uses {self.largest:,} rows, which must fit; give more slots")
            )
        self._nexts = deque(np.empty(len(rows), np.int32) for rows in self._rows)
        self._first, steps = self._step, [(step.rows, step.nexts) for step in self._in_flight]
        first_in_flight = self._step - len(steps)
        steps += zip(self._rows, self._nexts, strict=True)
        for i in reversed(range(len(steps))):
            kernels.next_uses(steps[i][0], first_in_flight + i, self._first_use, steps[i][1])
        self._next_uses[:] = 0
        for step in self._in_flight:
            kernels.count_next_uses(step.nexts, self._first, 1, self._next_uses)
        kernels.rank_rows(self._cache, self._first_use, first_in_flight, self._step)


def plan_together(plans: Sequence[RowPlan], tags: Iterable[int], wait: Callable[[int], None]) -> list[list[StepReads]]:
    """Plan a step and the following steps that are read together with it.

    As many steps are planned as fit in the cache once trainers have taken half of the steps in flight. Meanwhile the trainers work on the other half.

    Args:
        plans: the plan of each table.
        tags: tags of the step and of the following ones.
        wait: function called before a step is planned, with a tag: it must wait until all trainers have taken this step.

    Returns:
        For each table, the reads of each of the steps.
    """
    found: list[list[StepReads]] = []
    middle = min(plan.middle for plan in plans)
    for tag in tags:
        if not plans[0].num_known or (max(plan.free_slots() for plan in plans) > middle and found):
            break
        wait(max(plan.landed for plan in plans))  # wait before slots are reassigned whose rows may still be in use
        found.append([plan.next(tag) for plan in plans])
    return [list(reads) for reads in zip(*found, strict=True)]


def in_order(reads: Sequence[StepReads]) -> tuple[Array, Array]:
    """Merge the reads of several steps: return their rows (M,), ascending, and the rows' slots (M,)."""
    rows, slots = (np.concatenate(parts) for parts in ([own.rows for own in reads], [own.slots for own in reads]))
    order = np.argsort(rows, kind="stable")
    return rows[order], slots[order]
