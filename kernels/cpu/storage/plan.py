"""Which rows a cache keeps, where the accesses of the steps to come are known: Belady's MIN.

All rows have one size. While a step is planned, it and some steps before it are in flight: their rows are together in the cache, and none of their slots is
written. A row that stays from one step that uses it to the next one that does saves a read. It costs a slot at each step between them that
has neither of the two in flight, and there are as many such slots as the rows in flight leave. So the most reads are saved by the most such intervals of
which no more overlap than there are slots, anywhere: when a slot is needed, of the rows that no step in flight uses, that one goes whose
next use is latest. That is optimal for the steps that are known, as steps land in their order (Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966; for intervals Carlisle and Lloyd, "On the k-coloring of intervals", Discrete Applied
Mathematics 59(3), 1995).

Rows that no step in flight uses are in buckets by the step of their next use, and behind these, where no known step uses them, by how often they were used:
of two that nothing is known about, the one used less goes first. What goes is taken from the latest bucket, the row that entered it last
first. As rows enter in ascending order, a plan follows from its accesses alone. Steps count on from the cache's first one; all loops are linear.
"""

from typing import NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

NEVER = 2**31 - 1
"""The next use of a row that no known step uses."""
NUM_CLASSES = 112
"""Buckets for the rows that no known step uses: numbers of uses up to 2**16 - 1, told apart to an eighth."""


class CacheTables(NamedTuple):
    """A cache of N slots for rows of a table of V rows.

    Attributes:
        slot_of: (V,) int32, the slot that a row was last planned to be in, -1 for none.
        uses: (V,) uint16, in how many steps a row was used so far, the known ones included; no more than 2**16 - 1.
        row_of: (N,) the row that is planned to be in a slot.
        below: (N,) int32, the slot below it in its bucket, -1 for none.
        heads: (T+NUM_CLASSES,) int32, the topmost slot of each bucket: those of T steps, and of no step, the most used rows first.
        filled: (1,) int64, how many slots have a row: those from 0 on.
    """

    slot_of: np.ndarray
    uses: np.ndarray
    row_of: np.ndarray
    below: np.ndarray
    heads: np.ndarray
    filled: np.ndarray


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
def rank_rows(cache, first_use, first_in_flight, step):
    """Put the rows that no step in flight uses into buckets anew, before ``step``; ``first_use`` is that of the steps in flight on."""
    cache.heads[:] = -1
    for slot in range(cache.filled[0]):
        use = first_use[cache.row_of[slot]]
        if not first_in_flight <= use < step:
            _put(cache, slot, use - step)


@cpu_kernel
def land(cache, rows, nexts, step, first_step):
    """A step is no longer in flight: those of its rows (B,) that are used next (B,) after ``step``, which is planned now, may go from then on."""
    for i in range(len(rows)):
        if nexts[i] > step:
            _put(cache, cache.slot_of[rows[i]], nexts[i] - first_step)


@cpu_kernel
def plan_step(cache, rows, step, first_step, out_rows, out_slots):
    """Plan a step: which of its rows have to be read, and into which slots.

    Args:
        cache: changed.
        rows: (B,) the distinct rows of the step, ascending; with those of the steps in flight no more than N.
        step: its number.
        first_step: the step that ``rank_rows`` was called before.
        out_rows: (B,) the rows to read, ascending.
        out_slots: (B,) int32, their slots.

    Returns:
        How many rows have to be read.
    """
    num_read, place = 0, len(cache.heads) - 1
    cache.heads[step - first_step] = -1  # these are in use now
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
    """A number of uses with four bits of it kept: below ``NUM_CLASSES``, and no less for more uses."""
    exponent = 0
    while uses >= 16:
        uses, exponent = uses >> 1, exponent + 1
    return uses + 8 * exponent
