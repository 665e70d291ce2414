"""Cache policies that do not know future accesses, as baselines of the loader's plan: LRU, S3-FIFO, and fixed sets of rows.

A policy stores the slot of each row (``slot_of``) and updates it after each mini-batch. A policy need not cache every row that is read.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu import cpu_kernel


class Policy(Protocol):
    """A cache of N slots for the rows of a table (V, F).

    Attributes:
        slot_of: (V,) int32 slot of each row, or -1 for rows that are not in the cache.
    """

    slot_of: Array

    def update(self, rows: Array) -> None:
        """Update the cache after a mini-batch that used the distinct rows (B,), B at most N."""


class Fixed:
    """A cache with a fixed set of rows, which are there from the start."""

    def __init__(self, num_rows: int, chosen: Array) -> None:
        """Put row ``chosen[i]`` into slot i."""
        self.slot_of = np.full(num_rows, -1, np.int32)
        self.slot_of[chosen] = np.arange(len(chosen), dtype=np.int32)

    def update(self, rows: Array) -> None:
        """Do nothing: the rows are fixed."""


def most_of(counts: Array, num_slots: int) -> Array:
    """Return the ``num_slots`` rows with the largest counts (V,); of equal counts, rows with smaller ids come first."""
    return np.argsort(-counts.astype(np.int64), kind="stable")[:num_slots]


class Lru:
    """A cache that evicts the least recently used row."""

    def __init__(self, num_rows: int, num_slots: int) -> None:
        """Create an empty cache of ``num_slots`` slots."""
        self.slot_of = np.full(num_rows, -1, np.int32)
        ring = np.arange(num_slots + 1)  # a cyclic list of the slots, with a sentinel between the last and the first
        self._before, self._behind = (ring - 1) % len(ring), (ring + 1) % len(ring)
        self._row_of = np.full(num_slots, -1, np.int32)

    def update(self, rows: Array) -> None:
        """Mark the rows as used: first those in the cache, so that none of them is evicted for a row of the same mini-batch."""
        _lru(rows, self.slot_of, self._row_of, self._before, self._behind)


@cpu_kernel
def _lru(rows, slot_of, row_of, before, behind):  # type: ignore[no-untyped-def]
    end = len(row_of)
    for is_there in (True, False):
        for i in range(len(rows)):
            slot = slot_of[rows[i]]
            if not is_there and slot < 0:
                slot = before[end]
                if row_of[slot] >= 0:
                    slot_of[row_of[slot]] = -1
                row_of[slot], slot_of[rows[i]] = rows[i], slot
            elif not is_there or slot < 0:
                continue
            before[behind[slot]], behind[before[slot]] = before[slot], behind[slot]
            first = behind[end]
            before[slot], behind[slot], before[first], behind[end] = end, first, slot, slot


class S3Fifo:
    """A cache with three queues: of new rows, with a tenth of the slots; of rows used again, with the other slots; and of ids evicted from the first.

    Source: Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO queues are all you need for cache eviction" (SOSP 2023), algorithm 1.
    """

    def __init__(self, num_rows: int, num_slots: int) -> None:
        """Create an empty cache of ``num_slots`` slots."""
        self.slot_of = np.full(num_rows, -1, np.int32)
        small = max(1, num_slots // 10)
        self._most = np.array([small, num_slots - small, num_slots - small])
        self._queues = np.full((3, num_slots + 1), -1, np.int32)
        self._begins, self._lengths = np.zeros(3, np.int64), np.zeros(3, np.int64)
        self._uses = np.zeros(num_rows, np.uint8)
        self._is_ghost = np.zeros(num_rows, np.bool_)
        self._free = np.arange(num_slots, dtype=np.int32)
        self._num_free = np.array([num_slots])

    def update(self, rows: Array) -> None:
        """Count the uses of the rows that are in the cache, and insert the rows that are not."""
        queues = (self._queues, self._begins, self._lengths)
        _s3fifo(rows, self.slot_of, self._uses, self._is_ghost, queues, self._most, self._free, self._num_free)


_SMALL, _MAIN, _GHOST = 0, 1, 2


@cpu_kernel
def _push(queues, queue, row):  # type: ignore[no-untyped-def]
    rows, begins, lengths = queues
    rows[queue, (begins[queue] + lengths[queue]) % rows.shape[1]] = row
    lengths[queue] += 1


@cpu_kernel
def _pop(queues, queue):  # type: ignore[no-untyped-def]
    rows, begins, lengths = queues
    row = rows[queue, begins[queue]]
    begins[queue] = (begins[queue] + 1) % rows.shape[1]
    lengths[queue] -= 1
    return row


@cpu_kernel
def _leave(row, slot_of, free, num_free):  # type: ignore[no-untyped-def]
    free[num_free[0]] = slot_of[row]
    num_free[0] += 1
    slot_of[row] = -1


@cpu_kernel
def _evict_main(slot_of, uses, queues, free, num_free):  # type: ignore[no-untyped-def]
    while True:
        row = _pop(queues, _MAIN)
        if uses[row] == 0:
            _leave(row, slot_of, free, num_free)
            return
        uses[row] -= 1
        _push(queues, _MAIN, row)


@cpu_kernel
def _evict(slot_of, uses, is_ghost, queues, most, free, num_free):  # type: ignore[no-untyped-def]
    lengths = queues[2]
    while lengths[_SMALL] >= most[_SMALL]:
        row = _pop(queues, _SMALL)
        if uses[row] > 1:
            if lengths[_MAIN] >= most[_MAIN]:
                _evict_main(slot_of, uses, queues, free, num_free)
            _push(queues, _MAIN, row)
            continue
        if lengths[_GHOST] >= most[_GHOST]:
            is_ghost[_pop(queues, _GHOST)] = False
        _push(queues, _GHOST, row)
        is_ghost[row] = True
        _leave(row, slot_of, free, num_free)
        return
    _evict_main(slot_of, uses, queues, free, num_free)


@cpu_kernel
def _s3fifo(rows, slot_of, uses, is_ghost, queues, most, free, num_free):  # type: ignore[no-untyped-def]
    is_missing = np.empty(
        len(rows), np.bool_
    )  # determined before rows are inserted: a row that another row of its mini-batch evicts is not inserted again
    for i in range(len(rows)):
        is_missing[i] = slot_of[rows[i]] < 0
        if not is_missing[i]:
            uses[rows[i]] = min(uses[rows[i]] + 1, 3)
    for i in range(len(rows)):
        row = rows[i]
        if not is_missing[i]:
            continue
        while num_free[0] == 0:
            _evict(slot_of, uses, is_ghost, queues, most, free, num_free)
        num_free[0] -= 1
        slot_of[row], uses[row] = free[num_free[0]], 0
        _push(queues, _MAIN if is_ghost[row] else _SMALL, row)
        is_ghost[row] = False
