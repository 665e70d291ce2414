"""``RowPlan``: decides for each step which rows are read into which slots of the cache, from the accesses of future steps.

Once warm, twice ``prefetch_steps`` future steps are known. The plan is recomputed whenever a quarter of its steps is used up, in time linear in the known
accesses and the slots. So a step is planned four times on average. Until the window is full, two future steps are sampled for each step that is planned, so
that the first step does not wait for the whole window.
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
"""Fraction (1/N) of the slots, and of the stored accesses, for steps in flight. If two steps do not fit in it, they may use all slots; one always may."""


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
    """A step in flight: its tag (a step number that increases across epochs), its rows (B,) and their next uses (B,)."""

    tag: int
    rows: Array
    nexts: Array


class RowPlan:
    """A plan of reads and evictions, step by step; the algorithm is in ``hoptrain.kernels.cpu.storage.plan``.

    Attributes:
        wanted: number of future steps that should be added before the next step is planned.
        landed: tag of the last step that is no longer in flight; 0 for none.
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
        """Start with an empty cache.

        Args:
            slot_of: (V,) int32; updated with the planned slot of each row, -1 for none.
            num_slots: number of slots N.
            prefetch_steps: future steps to know, at least 1.
            most_foreseen: most accesses to store, including those of steps in flight; one step may always be stored. By default unlimited.
            in_flight: most steps in flight, at least 1.
            too_little: returns the exception for a step whose rows do not fit.
        """
        self._lookahead, self._most, self._too_little = prefetch_steps, most_foreseen or 2**63, too_little
        self._first_use = np.full(len(slot_of), -1, np.int32)
        self._rows, self._nexts = deque[Array](), deque[Array]()
        self._num_foreseen, self._num_rows_in_flight = 0, 0
        self._most_in_flight, self._in_flight = in_flight, deque[_Step]()
        self._step, self._first, self.landed = 0, 0, 0
        self._next_uses = np.zeros(
            2 * prefetch_steps + 1, np.int64
        )  # rows in flight by their next use, counted from _first; the last one for none
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
        """Tag of the middle one of the steps in flight, the earlier of two; ``landed`` if there is at most one."""
        half = len(self._in_flight) // 2
        return self._in_flight[half - 1].tag if half else self.landed

    @property
    def wanted(self) -> int:
        """Number of future steps to add: two for each planned step until twice ``prefetch_steps`` are known, none while memory is full."""
        known = len(self._rows)
        return int(not known) if self._num_foreseen >= self._most else min(2, 2 * self._lookahead - known)

    def foresee(self, rows: Array) -> None:
        """Append a step to the known future steps, given its distinct rows (B,), ascending."""
        self._rows.append(rows)
        self._num_foreseen += len(rows)
        kernels.count_uses(rows, self._cache.uses)

    def forget(self) -> None:
        """Drop all future steps and steps in flight, since other steps follow."""
        self._step += len(self._rows)  # so that old step numbers in first_use are in the past
        if self._in_flight:
            self.landed = self._in_flight[-1].tag
        for steps in (self._rows, self._nexts, self._in_flight):
            steps.clear()
        self._num_foreseen, self._num_rows_in_flight = 0, 0
        self._next_uses[:] = 0

    def make_room(self) -> int:
        """Free slots for the next step by taking steps out of flight, and return ``landed``, up to whose step ``next`` may overwrite rows.

        Raises:
            InputError: the rows of a step do not fit.
        """
        if 4 * len(self._nexts) <= 3 * len(self._rows):
            self._plan_anew()
        while self._in_flight and not self._has_room():
            landed = self._in_flight.popleft()
            kernels.land(self._cache, landed.rows, landed.nexts, self._step, self._first)
            kernels.count_next_uses(landed.nexts, self._first, -1, self._next_uses)
            self.landed = landed.tag
            self._num_foreseen -= len(landed.rows)
            self._num_rows_in_flight -= len(landed.rows)
        return self.landed

    def next(self, tag: int) -> StepReads:
        """Plan the first future step and return its reads; ``tag``, the step's number across epochs, must exceed the previous one and 0."""
        self.make_room()
        rows = self._rows.popleft()
        self._in_flight.append(_Step(tag, rows, self._nexts.popleft()))
        self._num_rows_in_flight += len(rows)
        kernels.count_next_uses(self._in_flight[-1].nexts, self._first, 1, self._next_uses)
        out = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int32)
        number = kernels.plan_step(self._cache, rows, self._step, self._first, *out)
        self._step += 1
        return StepReads(out[0][:number], out[1][:number], len(rows))

    def _has_room(self) -> bool:
        number, room = len(self._in_flight) + 1, len(self._cache.row_of)
        together = len(self._rows[0]) + int(self._next_uses[self._step - self._first + 1 :].sum())
        if number <= 2:
            return number <= self._most_in_flight and together <= room
        is_stored = _SHARE * self._num_rows_in_flight <= self._most
        return number <= self._most_in_flight and _SHARE * together <= room and is_stored

    def _plan_anew(self) -> None:
        """Recompute the plan from all known steps."""
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

    As many steps are read together as fit when half of the steps in flight have been taken; the trainers work on the other half meanwhile.

    Args:
        plans: the plan of each table.
        tags: tags of the step and of those that may be read with it.
        wait: called before a step is planned, with the tag of the last step that all trainers must have taken.

    Returns:
        For each table the reads of each step.
    """
    found: list[list[StepReads]] = []
    middle = min(plan.middle for plan in plans)
    for tag in tags:
        if not plans[0].num_known or (max(plan.make_room() for plan in plans) > middle and found):
            break
        wait(max(plan.landed for plan in plans))  # wait before slots of rows in use are reassigned
        found.append([plan.next(tag) for plan in plans])
    return [list(reads) for reads in zip(*found, strict=True)]


def in_order(reads: Sequence[StepReads]) -> tuple[Array, Array]:
    """Return the rows (M,) of steps that are read together, ascending, and their slots (M,)."""
    rows, slots = (np.concatenate(parts) for parts in ([own.rows for own in reads], [own.slots for own in reads]))
    order = np.argsort(rows, kind="stable")
    return rows[order], slots[order]
