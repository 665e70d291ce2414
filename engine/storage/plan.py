"""The plan of a cache of rows: for each step what is read into which slot, by the accesses of the steps to come.

The plan looks ``lookahead`` steps ahead at least once it is warm, and twice as many at most: it is made anew, in time linear in the accesses that it
knows and the slots, whenever half of what it knew is used up. So a step is planned twice on average, and no access is stored longer than it is known.
Two steps are foreseen for each that is planned until the window is full, so that the first one does not wait for all of it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.errors import InputError
from hoptrain.kernels.cpu.storage import plan as kernels

_IN_FLIGHT = 2
"""The largest step's rows, so many times: slots beyond those of rows that stay, to read into while the steps before are still in use."""


class StepReads(NamedTuple):
    """What has to be read before a step.

    Attributes:
        rows: (M,) rows of the table, ascending.
        slots: (M,) int32, where each of them goes.
        after: the tag of the step whose readers have to be done first; 0 for none.
        num_used: rows that the step uses, those that are there already included.
    """

    rows: Array
    slots: Array
    after: int
    num_used: int


class RowPlan:
    """Plans step by step; see ``hoptrain.kernels.cpu.storage.plan``.

    Attributes:
        wanted: steps that should be foreseen before the next one is planned.
    """

    def __init__(self, slot_of: Array, num_slots: int, lookahead: int, most_foreseen: int | None = None, what: str = "rows") -> None:
        """Begin with an empty cache.

        Args:
            slot_of: (V,) int32, where who reads the rows of a step writes their slots; becomes -1.
            num_slots: N.
            lookahead: steps, at least 1.
            most_foreseen: accesses that are stored at most (but for one step); by default all.
            what: of whose slots a message tells.
        """
        self._lookahead, self._most, self._what = lookahead, most_foreseen, what
        self._first_use = np.full(len(slot_of), -1, np.int32)
        self._rows, self._nexts = deque[Array](), deque[Array]()
        self._num_foreseen = 0
        self._step, self._first, self._tag, self._capacity = 0, 0, 0, 0
        slot_of[:] = -1
        self._cache = kernels.CacheTables(
            slot_of=slot_of,
            uses=np.zeros(len(slot_of), np.uint16),
            row_of=np.full(num_slots, -1, id_dtype(len(slot_of))),
            kept=np.zeros(num_slots, np.bool_),
            below=np.empty(num_slots, np.int32),
            heads=np.empty(2 * lookahead + kernels.NUM_CLASSES, np.int32),
            free=np.arange(num_slots, dtype=np.int32),
            released=np.zeros(num_slots, np.int64),
            counts=np.zeros(2, np.int64),
        )

    @property
    def num_known(self) -> int:
        """Steps that are foreseen."""
        return len(self._rows)

    @property
    def wanted(self) -> int:
        """See the class: two for each step, until twice ``lookahead`` are known."""
        known = len(self._rows)
        is_full = self._most is not None and self._num_foreseen >= self._most
        return int(not known) if is_full else min(2, 2 * self._lookahead - known)

    def foresee(self, rows: Array) -> None:
        """Take the distinct rows (B,) of the step after all that are known, ascending."""
        self._rows.append(rows)
        self._num_foreseen += len(rows)
        kernels.count_uses(rows, self._cache.uses)

    def forget(self) -> None:
        """Other steps come than those foreseen."""
        self._step += len(self._rows)  # numbers in first_use stay behind
        self._rows.clear()
        self._nexts.clear()
        self._num_foreseen = 0

    def next(self, tag: int) -> StepReads:
        """Plan the first of the steps foreseen; its ``tag`` is above that of the step before, and above 0. Then ``slot_of`` has to be told.

        Raises:
            InputError: its rows do not fit.
        """
        if 2 * len(self._nexts) <= len(self._rows):
            self._plan_anew()
        rows, nexts = self._rows.popleft(), self._nexts.popleft()
        self._num_foreseen -= len(rows)
        out = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int32)
        number, after = kernels.plan_step(self._cache, rows, nexts, self._step, self._first, self._capacity, tag, *out)
        self._step, self._tag = self._step + 1, tag
        return StepReads(out[0][:number], out[1][:number], after, len(rows))

    def told(self, reads: StepReads) -> None:
        """Tell ``slot_of`` what was planned, where nobody reads."""
        self._cache.slot_of[reads.rows] = reads.slots

    def _plan_anew(self) -> None:
        """Look at all that is known."""
        num_slots, largest = len(self._cache.row_of), max(map(len, self._rows))
        if largest > num_slots:
            raise InputError(
                f"memory has room for {num_slots:,} {self._what}, and a step reads {largest:,}: give more memory, or a smaller batch_size or fanouts"
            )
        self._capacity, self._first = max(0, num_slots - _IN_FLIGHT * largest), self._step
        self._nexts = deque(np.empty(len(rows), np.int32) for rows in self._rows)
        for i in reversed(range(len(self._rows))):
            kernels.next_uses(self._rows[i], self._step + i, self._first_use, self._nexts[i])
        kernels.rank_kept(self._cache, self._first_use, self._step, self._capacity, self._tag)
