"""Counts of the rows that machines send: with hoptrain's plan, and the fewest that any plan could send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.plan import RowPlan
from hoptrain.engine.storage.shared_rows import tag_of
from hoptrain.samplers.loader.feature_cache import LOOKAHEAD, WINDOWS

WINDOW = LOOKAHEAD // WINDOWS


def windows(steps: Sequence[Array], num_steps: int) -> list[Array]:
    """Return the distinct rows of each window of ``WINDOW`` steps.

    Args:
        steps: rows of each step, over whole epochs; the last window of an epoch may be shorter.
        num_steps: steps of an epoch.
    """
    return [
        np.unique(np.concatenate(steps[first : min(first + WINDOW, begin + num_steps)]))
        for begin in range(0, len(steps), num_steps)
        for first in range(begin, begin + num_steps, WINDOW)
    ]


def fewest(accesses: Sequence[Array], num_slots: int) -> int:
    """Return the fewest rows that any cache of ``num_slots`` rows has to fetch; each access is the distinct rows (M,) that are needed at once.

    From one access to the next the cache keeps the ``num_slots`` rows whose next use is the earliest (Belady's MIN). The rows of the current access need no
    slots. This is optimal: if there are fewer slots than rows to keep, the cache drops those whose next use is the latest.
    """
    num_rows = 1 + max((int(rows.max()) for rows in accesses if len(rows)), default=0)
    never = len(accesses)
    uses, after = np.full(num_rows, never), []
    for at in reversed(range(never)):
        after.append(uses[accesses[at]])
        uses[accesses[at]] = at
    is_kept, next_use, brought = np.zeros(num_rows, bool), np.full(num_rows, never), 0
    for rows, nexts in zip(accesses, reversed(after), strict=True):
        brought += int((~is_kept[rows]).sum())
        is_kept[rows], next_use[rows] = True, nexts
        is_kept &= next_use < never
        kept = np.flatnonzero(is_kept)
        if len(kept) > num_slots:
            is_kept[kept[np.argsort(next_use[kept], kind="stable")[num_slots:]]] = False
    return brought


def planned(
    rows_of: Callable[[int, int], Array],
    num_rows: int,
    num_slots: int,
    num_steps: int,
    num_epochs: int,
    most_foreseen: int | None = None,
    window: int = WINDOW,
    sampled: int | None = None,
) -> list[Array]:
    """Return the distinct rows that ``RowPlan`` reads in each window.

    Args:
        rows_of: the function that returns the rows (B,) that an epoch's step uses.
        num_rows: number of rows of the table.
        num_slots: slots of the cache.
        num_steps: steps of an epoch.
        num_epochs: number of epochs.
        most_foreseen: largest number of accesses that the plan stores; None for no limit.
        window: steps of a window.
        sampled: number of steps that are known before a window begins, none of them of the next epoch; None for the loader's default look-ahead.
    """
    plan = RowPlan(np.empty(num_rows, np.int32), num_slots, sampled or LOOKAHEAD, most_foreseen)
    later = (rows_of(epoch, step) for epoch in count() for step in range(num_steps))
    if sampled is None:
        plan.foresee(next(later))
    found: list[Array] = []
    for epoch in range(num_epochs):
        unknown = num_steps
        if sampled is not None:
            plan.forget()
        for first in range(0, num_steps, window):
            read = []
            for step in range(first, min(first + window, num_steps)):
                number = plan.wanted if sampled is None else min(plan.wanted, unknown - max(0, num_steps - first - sampled))
                for _ in range(number):
                    plan.foresee(next(later))
                unknown -= number
                read.append(plan.next(tag_of(epoch + 1, step)).rows)
            found.append(np.unique(np.concatenate(read)))
    return found
