"""A cache plan with known future accesses, by Belady's MIN algorithm.

All rows have one size. While a step is planned, it and some earlier steps are in flight: all their rows are in the cache, and none of their slots is
overwritten. Keeping a row from one step that uses it to the next one saves a read. It costs a slot at each step in between at which neither of
the two steps is in flight; the rows in flight leave a limited number of such slots. So the most reads are saved by the largest set of such
intervals that nowhere overlap more often than there are free slots. The rule is: when a slot is needed, evict the row that no step in flight uses
and whose next use is latest. This is optimal for the known steps, since steps finish in order (Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966; for intervals Carlisle and Lloyd, "On the k-coloring of intervals", Discrete Applied
Mathematics 59(3), 1995).

Rows that no step in flight uses are in buckets by the step of their next use. Rows without a known next use are in further buckets after these, by their number
of uses; rarely used rows are evicted first. The row to evict is the one that entered the latest bucket last. As rows enter in ascending order, a plan depends
only on the accesses. Steps are numbered from the cache's first step; all loops take linear time.
"""

from typing import NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

NEVER = 2**31 - 1
"""Value for the next use of a row that no planned step uses."""
NUM_CLASSES = 112
"""Number of buckets for rows that no planned step uses. A bucket holds rows with similar numbers of uses, from 0 to 2**16 - 1, within one eighth."""


class CacheTables(NamedTuple):
    """The state of a cache of N slots for a store of V rows.

    Attributes:
        slot_of: (V,) int32 slot that each row was last planned to be in, -1 for none.
        uses: (V,) uint16 number of steps that used each row, known future steps included; at most 2**16 - 1.
        row_of: (N,) index of the row that is planned to be in each slot.
        below: (N,) int32 next slot of the same bucket, whose slots form a linked stack; -1 for none.
        heads: (T+NUM_CLASSES,) int32 topmost slot of each bucket: the buckets of T steps, then the buckets of rows without a known next use, the most used rows
            first.
        filled: (1,) int64 number of slots that hold a row; these are the first slots.
    """

    slot_of: np.ndarray
    uses: np.ndarray
    row_of: np.ndarray
    below: np.ndarray
    heads: np.ndarray
    filled: np.ndarray


@cpu_kernel
def count_uses(rows, uses):
    """Increment the number of uses, ``uses`` (V,), of each of the rows (B,) of a step."""
    for i in range(len(rows)):
        uses[rows[i]] += uses[rows[i]] < 0xFFFF


@cpu_kernel
def next_uses(rows, step, first_use, out):
    """Find the step at which each row of a step is used next. Call it for one step after another, from the last known step backward.

    Args:
        rows: (B,) distinct rows of the step.
        step: Index of the step.
        first_use: (V,) int32 first later step that uses each row; values up to ``step`` are stale. Updated to include ``step``.
        out: (B,) int32, receives the next use of each row, or ``NEVER``.
    """
    for i in range(len(rows)):
        later = first_use[rows[i]]
        out[i] = later if later > step else NEVER
        first_use[rows[i]] = step


@cpu_kernel
def count_next_uses(nexts, first_step, sign, counts):
    """Add ``sign`` to ``counts`` (T+1,) for each next use (B,) in ``nexts``, at its distance from ``first_step``; at 0 for earlier uses, at T for none."""
    for i in range(len(nexts)):
        counts[min(max(np.int64(nexts[i]) - first_step, 0), len(counts) - 1)] += sign


@cpu_kernel
def rank_rows(cache, first_use, first_in_flight, step):
    """Rebuild the buckets from all rows that no step in flight uses, before ``step`` is planned.

    ``first_use`` is the first use of each row from the first step in flight on.
    """
    cache.heads[:] = -1
    for slot in range(cache.filled[0]):
        use = first_use[cache.row_of[slot]]
        if not first_in_flight <= use < step:
            _put(cache, slot, use - step)


@cpu_kernel
def land(cache, rows, nexts, step, first_step):
    """Make the rows (B,) of a finished step evictable, unless their next use (B,) is not after ``step``, the step that is planned now."""
    for i in range(len(rows)):
        if nexts[i] > step:
            _put(cache, cache.slot_of[rows[i]], nexts[i] - first_step)


@cpu_kernel
def plan_step(cache, rows, step, first_step, out_rows, out_slots):
    """Plan a step: choose the rows to read and their slots.

    Args:
        cache: State of the cache; changed in place.
        rows: (B,) distinct rows of the step, ascending. Together with the rows of the steps in flight there are at most N.
        step: Index of the step.
        first_step: Step for which ``rank_rows`` was last called.
        out_rows: (B,), receives the rows to read, ascending.
        out_slots: (B,) int32, receives the slots of these rows.

    Returns:
        The number of rows to read.
    """
    num_read, place = 0, len(cache.heads) - 1
    cache.heads[step - first_step] = -1  # this step uses the rows of this bucket, so they cannot be evicted
    for i in range(len(rows)):
        slot = cache.slot_of[rows[i]]
        if slot >= 0 and cache.row_of[slot] == rows[i]:
            continue
        if cache.filled[0] < len(cache.row_of):
            slot = np.int32(cache.filled[0])
            cache.filled[0] += 1
        else:
            while cache.heads[place] < 0:
                place -= 1
            slot = cache.heads[place]
            cache.heads[place] = cache.below[slot]
        cache.row_of[slot], cache.slot_of[rows[i]] = rows[i], slot
        out_rows[num_read], out_slots[num_read] = rows[i], slot
        num_read += 1
    return num_read


@cpu_kernel
def _put(cache, slot, bucket):
    steps = len(cache.heads) - NUM_CLASSES
    place = bucket if 0 <= bucket < steps else len(cache.heads) - 1 - class_of(cache.uses[cache.row_of[slot]])
    cache.below[slot] = cache.heads[place]
    cache.heads[place] = slot


@cpu_kernel
def class_of(uses):
    """Return the bucket of a number of uses, rounded to four significant bits. It is below ``NUM_CLASSES`` and grows with the number."""
    exponent = 0
    while uses >= 16:
        uses, exponent = uses >> 1, exponent + 1
    return uses + 8 * exponent
