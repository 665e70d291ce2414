"""The plan of a cache of rows: for each step what is read into which slot, by the accesses of the steps to come.

The plan looks ``prefetch_steps`` steps ahead at least once it is warm, and twice as many at most: it is made anew, in time linear in the accesses that it
knows and the slots, whenever half of what it knew is used up. So a step is planned twice on average, and no access is stored longer than it is known.
Two steps are foreseen for each that is planned until the window is full, so that the first one does not wait for all of it.
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
"""Steps whose rows are there together at most, the one that is planned included."""
_SHARE = 2
"""A part of this many of the slots is for them, and of the accesses that are stored; where it has no room for two steps, these may have all, and one in any
case."""


class StepReads(NamedTuple):
    """What has to be read before a step.

    Attributes:
        rows: (M,) rows of the table, ascending.
        slots: (M,) int32, where each of them goes.
        num_used: rows that the step uses, those that are there already included.
    """

    rows: Array
    slots: Array
    num_used: int


class _Step(NamedTuple):
    """A step that is in flight: its tag, its rows (B,) and their next uses (B,)."""

    tag: int
    rows: Array
    nexts: Array


class RowPlan:
    """Plans step by step; see ``hoptrain.kernels.cpu.storage.plan``.

    Attributes:
        wanted: steps that should be foreseen before the next one is planned.
        landed: the tag of the last step that is no longer in flight; 0 for none.
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
        """Begin with an empty cache.

        Args:
            slot_of: (V,) int32, becomes where each row was last planned to be, -1 for nowhere.
            num_slots: N.
            prefetch_steps: steps, at least 1.
            most_foreseen: accesses that are stored at most (but for one step), those of steps in flight included; by default all.
            in_flight: the most steps that are, at least 1.
            too_little: makes what is raised where a step's rows do not fit.
        """
        self._lookahead, self._most, self._too_little = prefetch_steps, most_foreseen or 2**63, too_little
        self._first_use = np.full(len(slot_of), -1, np.int32)
        self._rows, self._nexts = deque[Array](), deque[Array]()
        self._num_foreseen = 0
        self._most_in_flight, self._in_flight = in_flight, deque[_Step]()
        self._step, self._first, self.landed = 0, 0, 0
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
        """Steps that are foreseen."""
        return len(self._rows)

    @property
    def largest(self) -> int:
        """Rows of the largest step that is foreseen, and not planned."""
        return max(map(len, self._rows), default=0)

    @property
    def middle(self) -> int:
        """The tag of the step in the middle of those in flight, the earlier one of two; ``landed`` where there is one at most."""
        half = len(self._in_flight) // 2
        return self._in_flight[half - 1].tag if half else self.landed

    @property
    def wanted(self) -> int:
        """See the class: two for each step, until twice ``prefetch_steps`` are known."""
        known = len(self._rows)
        return int(not known) if self._num_foreseen >= self._most else min(2, 2 * self._lookahead - known)

    def foresee(self, rows: Array) -> None:
        """Take the distinct rows (B,) of the step after all that are known, ascending."""
        self._rows.append(rows)
        self._num_foreseen += len(rows)
        kernels.count_uses(rows, self._cache.uses)

    def forget(self) -> None:
        """Other steps come than those foreseen."""
        self._step += len(self._rows)  # numbers in first_use stay behind
        if self._in_flight:
            self.landed = self._in_flight[-1].tag
        for steps in (self._rows, self._nexts, self._in_flight):
            steps.clear()
        self._num_foreseen = 0

    def make_room(self) -> int:
        """Let steps land until there is room for the next one; returns ``landed``: what that step used may be in slots that ``next`` gives away.

        Raises:
            InputError: the rows of a step do not fit.
        """
        if 2 * len(self._nexts) <= len(self._rows):
            self._plan_anew()
        while self._in_flight and not self._has_room():
            landed = self._in_flight.popleft()
            kernels.land(self._cache, landed.rows, landed.nexts, self._step, self._first)
            self.landed = landed.tag
            self._num_foreseen -= len(landed.rows)
        return self.landed

    def next(self, tag: int) -> StepReads:
        """Plan the first of the steps foreseen; its ``tag`` is above that of the step before, and above 0."""
        self.make_room()
        rows = self._rows.popleft()
        self._in_flight.append(_Step(tag, rows, self._nexts.popleft()))
        out = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int32)
        number = kernels.plan_step(self._cache, rows, self._step, self._first, *out)
        self._step += 1
        return StepReads(out[0][:number], out[1][:number], len(rows))

    def _has_room(self) -> bool:
        number, room = len(self._in_flight) + 1, len(self._cache.row_of)
        together = len(self._rows[0]) + sum(int((step.nexts > self._step).sum()) for step in self._in_flight)
        if number <= 2:
            return number <= self._most_in_flight and together <= room
        is_stored = _SHARE * sum(len(step.rows) for step in self._in_flight) <= self._most
        return number <= self._most_in_flight and _SHARE * together <= room and is_stored

    def _plan_anew(self) -> None:
        """Look at all that is known."""
        num_slots = len(self._cache.row_of)
        if self.largest > num_slots:
            raise (
                self._too_little()
                if self._too_little
                else InputError(f"{num_slots:,} slots, and a step uses {self.largest:,} rows: give more")
            )
        self._nexts = deque(np.empty(len(rows), np.int32) for rows in self._rows)
        self._first, steps = self._step, [(step.rows, step.nexts) for step in self._in_flight]
        first_in_flight = self._step - len(steps)
        steps += zip(self._rows, self._nexts, strict=True)
        for i in reversed(range(len(steps))):
            kernels.next_uses(steps[i][0], first_in_flight + i, self._first_use, steps[i][1])
        kernels.rank_rows(self._cache, self._first_use, first_in_flight, self._step)


def plan_together(plans: Sequence[RowPlan], tags: Iterable[int], wait: Callable[[int], None]) -> list[list[StepReads]]:
    """Plan a step, and those after it that are read with it.

    These are as many as there is room for when half of the steps in flight have landed: trainers have the other half meanwhile.

    Args:
        plans: of each table.
        tags: of the step, and of those that may be read with it.
        wait: is called before a step is planned, with the tag of the last one that has to be done with by then.

    Returns:
        Of each table the reads of each step.
    """
    found: list[list[StepReads]] = []
    middle = min(plan.middle for plan in plans)
    for tag in tags:
        if not plans[0].num_known or (max(plan.make_room() for plan in plans) > middle and found):
            break
        wait(max(plan.landed for plan in plans))  # before rows that were in use get other places
        found.append([plan.next(tag) for plan in plans])
    return [list(reads) for reads in zip(*found, strict=True)]


def in_order(reads: Sequence[StepReads]) -> tuple[Array, Array]:
    """The rows (M,) of some steps that are read together, ascending, and their slots (M,)."""
    rows, slots = (np.concatenate(parts) for parts in ([own.rows for own in reads], [own.slots for own in reads]))
    order = np.argsort(rows, kind="stable")
    return rows[order], slots[order]
