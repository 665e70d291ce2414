"""Reading rows of a file into cache slots: merging rows into reads, and the reads themselves, all in compiled code."""

import numpy as np
from numba import types

from hoptrain.kernels.cpu import cpu_kernel

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


@cpu_kernel
def extents(rows, row_bytes, offset, block, gap, most, firsts):
    """Merge ascending rows into runs, each of which is a single read of whole blocks.

    Args:
        rows: (M,) row indices, ascending.
        row_bytes: Bytes of a row.
        offset: Byte offset of row 0 in the file.
        block: Alignment in bytes; a read begins and ends at multiples of it.
        gap: Maximum number of unneeded bytes between two rows of one read.
        most: Maximum bytes of a read of several rows.
        firsts: (M+1,), receives the index in ``rows`` of each run's first row, and M at the end.

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
    """Read the runs [first, last), and copy their rows into slots.

    Args:
        file: File descriptor.
        rows: (M,) row indices, ascending, in [0, V).
        slots: (M,) slot of each row.
        row_bytes: Bytes of a row.
        offset: Byte offset of row 0 in the file.
        block: Alignment in bytes; a read begins and ends at multiples of it.
        firsts: (K+1,) index in ``rows`` of each run's first row, from ``extents``.
        first: First run to read.
        last: Run after the last run to read.
        buffer: (bytes,) uint8 buffer, aligned for the file, of at least the length of the longest run.
        out: (N, row_bytes) uint8 slots, which receive the rows.

    Returns:
        The first run that could not be read completely, or ``last``.
    """
    for run in range(first, last):
        begin = run_begin(rows, firsts, run, row_bytes, offset, block)
        needed = needed_bytes(rows, firsts, run, row_bytes, offset, begin)
        length = -(-needed // block) * block
        if _pread(np.int32(file), buffer.ctypes.data, np.uintp(length), begin) < needed:
            return run
        copy_run(rows, slots, firsts, run, row_bytes, offset, begin, buffer, out)
    return last


@cpu_kernel
def run_begin(rows, firsts, run, row_bytes, offset, block):
    """Return the byte at which the read of a run begins."""
    return (offset + rows[firsts[run]] * row_bytes) // block * block


@cpu_kernel
def needed_bytes(rows, firsts, run, row_bytes, offset, begin):
    """Return the number of bytes from ``begin`` to the end of a run's last row."""
    return offset + (rows[firsts[run + 1] - 1] + 1) * row_bytes - begin


@cpu_kernel
def copy_run(rows, slots, firsts, run, row_bytes, offset, begin, buffer, out):
    """Copy the rows of a run from ``buffer``, which has the file's bytes from ``begin`` on, into their slots."""
    for i in range(firsts[run], firsts[run + 1]):
        source = buffer[offset + rows[i] * row_bytes - begin :]
        copy = out[slots[i]]
        for k in range(row_bytes):
            copy[k] = source[k]


@cpu_kernel
def find_slots(ids, slot_of, row_of, out):
    """Look up the slots of rows.

    Args:
        ids: (S,) row indices in [0, V).
        slot_of: (V,) int32 slot that each row was last planned to be in, -1 for none.
        row_of: (N,) row in each slot.
        out: (S,) int32, receives the slots.

    Returns:
        The first position in ``ids`` whose row has no slot, or -1.
    """
    for i in range(len(ids)):
        slot = slot_of[ids[i]]
        if slot < 0 or row_of[slot] != ids[i]:
            return i
        out[i] = slot
    return -1


@cpu_kernel
def find_slots_elsewhere(ids, place, first, end, slot_of, row_of, out):
    """Look up the slots of rows as ``find_slots`` does; rows with ``first <= place < end`` have none and get ``-1 - (place - first)``.

    ``place`` (V,) is an integer for each row, such as its position in another store.
    """
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
