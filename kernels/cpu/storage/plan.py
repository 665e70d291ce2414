"""Which rows a cache keeps, where the accesses of the steps to come are known: Belady's MIN.

All rows have one size, and a step needs all of its rows at once. A row in the cache between two steps that use it saves one read, so the most reads
are saved by the most such intervals of which no more than the cache's capacity overlap anywhere: after each step, of the rows cached and the rows just
used, those stay whose next use is earliest, and a row that is not among them passes through (bypass). That is optimal for the steps that
are known (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966; for intervals Carlisle and
Lloyd, "On the k-coloring of intervals", Discrete Applied Mathematics 59(3), 1995).

Rows are put in buckets by the step of their next use, and behind these, where no known step uses them, by how often they were used: of two that nothing
is known about, the one used less goes first. What has to go is taken from the latest bucket, the row that entered it last first. As rows enter in
ascending order, a plan follows from its accesses alone. Steps count on from the cache's first one; all loops are linear.
"""

from typing import NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

NEVER = 2**31 - 1
"""The next use of a row that no known step uses."""
NUM_CLASSES = 112
"""Buckets for the rows that no known step uses: numbers of uses up to 2**16 - 1, told apart to an eighth."""
NUM_KEPT, FREE_BEGIN = 0, 1
"""Places in ``CacheTables.counts``."""


class CacheTables(NamedTuple):
    """A cache of N slots for rows of a table of V rows.

    Attributes:
        slot_of: (V,) int32, the slot that a row was last read into, -1 for none.
        uses: (V,) uint16, in how many steps a row was used so far, the known ones included; no more than 2**16 - 1.
        row_of: (N,) the row that is planned to be in a slot, -1 for none.
        kept: (N,) bool, whether the row stays after the last step.
        below: (N,) int32, the slot below it in its bucket, -1 for none.
        heads: (T+NUM_CLASSES,) int32, the topmost slot of each bucket: those of T steps, and of no step, the most used rows first.
        free: (N,) int32, a ring of slots that can be read into.
        released: (N,) int64, for each place of the ring the tag of the last step that may use the slot's old row.
        counts: (2,) int64, how many rows are kept, and where the ring begins. It holds all slots that are not kept.
    """

    slot_of: np.ndarray
    uses: np.ndarray
    row_of: np.ndarray
    kept: np.ndarray
    below: np.ndarray
    heads: np.ndarray
    free: np.ndarray
    released: np.ndarray
    counts: np.ndarray


@cpu_kernel
def count_uses(rows, uses):
    """Add the rows (B,) of a step to ``uses``."""
    for i in range(len(rows)):
        uses[rows[i]] += uses[rows[i]] < 0xFFFF


@cpu_kernel
def next_uses(rows, step, first_use, out):
    """The step at which each row of a step is used next, for one step after another from the last known one backward.

    Args:
        rows: (B,) the distinct rows of the step.
        step: its number.
        first_use: (V,) int32, the first of the later steps that uses a row; what lies before them says nothing. Becomes that of ``step`` on.
        out: (B,) int32, the next use, or ``NEVER``.
    """
    for i in range(len(rows)):
        later = first_use[rows[i]]
        out[i] = later if later > step else NEVER
        first_use[rows[i]] = step


@cpu_kernel
def rank_kept(cache, first_use, step, capacity, tag):
    """Put the rows that are kept into buckets anew, before ``step``; those beyond ``capacity`` go, after the step of ``tag``."""
    cache.heads[:] = -1
    for slot in range(len(cache.kept)):
        if cache.kept[slot]:
            _put(cache, slot, first_use[cache.row_of[slot]] - step)
    _drop(cache, capacity, tag)


@cpu_kernel
def plan_step(cache, rows, nexts, step, first_step, capacity, tag, out_rows, out_slots):
    """Plan a step: which of its rows have to be read, into which slots, and what stays after it.

    Args:
        cache: changed, but for ``slot_of``, which is left to who has read the rows, before the next step is planned.
        rows: (B,) the distinct rows of the step, ascending; at most N - ``capacity``, and no more than are not kept.
        nexts: (B,) int32, their next uses.
        step: its number.
        first_step: the step that ``rank_kept`` was called before.
        capacity: rows that stay.
        tag: the step's own, larger than that of the step before.
        out_rows: (B,) the rows to read, ascending.
        out_slots: (B,) int32, their slots.

    Returns:
        How many rows have to be read, and the tag of the step whose readers have to be done before.
    """
    num_read, after = 0, np.int64(0)
    num_slots, begin = len(cache.free), cache.counts[FREE_BEGIN]
    cache.heads[step - first_step] = -1  # those of this step: each gets into another bucket now
    for i in range(len(rows)):
        slot = cache.slot_of[rows[i]]
        if slot < 0 or cache.row_of[slot] != rows[i] or not cache.kept[slot]:
            slot, after = cache.free[begin], cache.released[begin]
            begin = begin + 1 if begin + 1 < num_slots else 0
            cache.row_of[slot], cache.kept[slot] = rows[i], True
            out_rows[num_read], out_slots[num_read] = rows[i], slot
            num_read += 1
        _put(cache, slot, nexts[i] - first_step)
    cache.counts[FREE_BEGIN] = begin
    cache.counts[NUM_KEPT] += num_read
    _drop(cache, capacity, tag)
    return num_read, after


@cpu_kernel
def _put(cache, slot, bucket):
    steps = len(cache.heads) - NUM_CLASSES
    place = bucket if 0 <= bucket < steps else len(cache.heads) - 1 - _class(cache.uses[cache.row_of[slot]])
    cache.below[slot] = cache.heads[place]
    cache.heads[place] = slot


@cpu_kernel
def _class(uses):
    """A number of uses with four bits of it kept: below ``NUM_CLASSES``, and no less for more uses."""
    exponent = 0
    while uses >= 16:
        uses, exponent = uses >> 1, exponent + 1
    return uses + 8 * exponent


@cpu_kernel
def _drop(cache, capacity, tag):
    """Let the rows beyond ``capacity`` go, those used latest first."""
    place, num_slots = len(cache.heads) - 1, len(cache.free)
    while cache.counts[NUM_KEPT] > capacity:
        slot = cache.heads[place]
        if slot < 0:
            place -= 1
            continue
        cache.heads[place] = cache.below[slot]
        cache.kept[slot] = False
        end = cache.counts[FREE_BEGIN] + num_slots - cache.counts[NUM_KEPT]  # of the ring: all slots but those kept
        end -= num_slots if end >= num_slots else 0
        cache.free[end], cache.released[end] = slot, tag
        cache.counts[NUM_KEPT] -= 1
