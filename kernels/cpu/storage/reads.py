"""Rows of a file into slots: which pieces of the file to read, and the reads themselves, without Python in between."""

import numpy as np
from numba import types

from hoptrain.kernels.cpu import cpu_kernel

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


@cpu_kernel
def extents(rows, row_bytes, offset, block, gap, most, firsts):
    """Cut ascending rows into runs, each of which is one read of whole blocks.

    Args:
        rows: (M,) row numbers, ascending.
        row_bytes: bytes of a row.
        offset: where row 0 begins in the file.
        block: a read begins and ends at multiples of it.
        gap: bytes that are rather read than left out.
        most: bytes of a read of several rows.
        firsts: (M+1,) becomes the place in ``rows`` of each run's first row, and M.

    Returns:
        The number of runs, K.
    """
    number, begin, end = 0, np.int64(0), np.int64(0)
    for i in range(len(rows)):
        first = (offset + rows[i] * row_bytes) // block * block
        last = -(-(offset + (rows[i] + 1) * row_bytes) // block) * block
        if i == 0 or first > end + gap or last - begin > most:
            firsts[number] = i
            number, begin = number + 1, first
        end = last
    firsts[number] = len(rows)
    return number


@cpu_kernel
def read_extents(file, rows, slots, row_bytes, offset, block, firsts, first, last, buffer, out):
    """Read runs ``first`` to ``last``, without it, and put their rows into slots.

    Args:
        file: descriptor.
        rows: (M,) row numbers, ascending, in [0, V).
        slots: (M,) where each of them goes.
        row_bytes: bytes of a row.
        offset: where row 0 begins in the file.
        block: as of ``extents``.
        firsts: (K+1,) what ``extents`` found.
        first: the first run.
        last: the run after the last one.
        buffer: (bytes,) uint8, aligned for the file, as long as the longest run.
        out: (N, row_bytes) uint8.

    Returns:
        The first run that could not be read in whole, else ``last``.
    """
    for run in range(first, last):
        begin = (offset + rows[firsts[run]] * row_bytes) // block * block
        needed = offset + (rows[firsts[run + 1] - 1] + 1) * row_bytes - begin
        length = -(-needed // block) * block
        if _pread(np.int32(file), buffer.ctypes.data, np.uintp(length), begin) < needed:
            return run
        for i in range(firsts[run], firsts[run + 1]):
            source = buffer[offset + rows[i] * row_bytes - begin :]
            copy = out[slots[i]]
            for k in range(row_bytes):
                copy[k] = source[k]
    return last


@cpu_kernel
def find_slots(ids, slot_of, row_of, out):
    """The slots of rows.

    Args:
        ids: (S,) row numbers in [0, V).
        slot_of: (V,) int32, the slot that a row was last planned to be in, -1 for none.
        row_of: (N,) the row in a slot.
        out: (S,) int32, becomes the slots.

    Returns:
        The first place in ``ids`` whose row has no slot, -1 if all have.
    """
    for i in range(len(ids)):
        slot = slot_of[ids[i]]
        if slot < 0 or row_of[slot] != ids[i]:
            return i
        out[i] = slot
    return -1


@cpu_kernel
def find_slots_elsewhere(ids, place, first, end, slot_of, row_of, out):
    """As ``find_slots``, but of rows whose ``place`` (V,) is from ``first`` to ``end``, without it, which have none: -1 less their number from ``first`` on."""
    for i in range(len(ids)):
        at = np.int64(place[ids[i]])
        if first <= at < end:
            out[i] = first - at - 1
            continue
        slot = slot_of[ids[i]]
        if slot < 0 or row_of[slot] != ids[i]:
            return i
        out[i] = slot
    return -1
