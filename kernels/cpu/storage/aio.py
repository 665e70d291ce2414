"""Asynchronous reads of Linux (``io_submit``, see ``man 7 aio``): one thread keeps many reads in flight, and sleeps once for several of them.

A read by its own thread takes the processor three times as long as a read of this kind: for the switch to the thread, its wake-up, and its turn at
Python's lock. The kernel performs asynchronous reads only of files that are opened with O_DIRECT; others block in ``io_submit``.
"""

import ctypes
import platform
from typing import NamedTuple

import numpy as np
from numba import types

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.storage.reads import copy_run, needed_bytes, run_begin


class _Calls(NamedTuple):
    """Numbers of the system calls. Constants, since the C library has no functions for them."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}.get(platform.machine())
_SUBMIT, _GETEVENTS = (_CALLS.submit, _CALLS.getevents) if _CALLS else (-1, -1)
_syscall = types.ExternalFunction("syscall", types.intp(types.intp, types.intp, types.intp, types.intp, types.uintp, types.intp))
_REQUEST_WORDS, _EVENT_WORDS = 8, 4
"""Sizes of the structs ``iocb`` and ``io_event`` in 64-bit words."""
_WAKE = 4
"""A thread sleeps until 1 / ``_WAKE`` of the reads in flight have ended; the others keep the device busy."""


def setup(depth: int) -> int:
    """Return a new context for up to ``depth`` reads in flight, or 0 if the system does not permit one."""
    context = ctypes.c_ulong(0)
    is_made = _CALLS is not None and ctypes.CDLL(None).syscall(_CALLS.setup, depth, ctypes.byref(context)) == 0
    return context.value if is_made else 0


def destroy(context: int) -> None:
    """Free a context; wait for its reads in flight. Has no effect in a fork of the process that made it."""
    if _CALLS is not None:
        ctypes.CDLL(None).syscall(_CALLS.destroy, ctypes.c_ulong(context))


@cpu_kernel
def read_at_once(context, file, rows, slots, row_bytes, offset, block, firsts, first, last, buffers, out, num_done):
    """Read the runs [first, last), and copy their rows into slots, with up to D reads in flight.

    Args:
        context: Context of at least D reads.
        file: File descriptor.
        rows: (M,) row indices, ascending, in [0, V).
        slots: (M,) slot of each row.
        row_bytes: Bytes of a row.
        offset: Byte offset of row 0 in the file.
        block: Alignment in bytes; a read begins and ends at multiples of it.
        firsts: (K+1,) index in ``rows`` of each run's first row, from ``extents``.
        first: First run to read.
        last: Run after the last run to read.
        buffers: (D, bytes) uint8 buffers, aligned for the file, each of at least the length of the longest run.
        out: (N, row_bytes) uint8 slots, which receive the rows.
        num_done: (1,) int64, counts the reads that have ended.

    Returns:
        The first run that could not be read completely, or ``last``; all runs before it were read. No read is in flight any more.
    """
    depth = len(buffers)
    requests, events = np.zeros((depth, _REQUEST_WORDS), np.int64), np.empty((depth, _EVENT_WORDS), np.int64)
    pointers, run_of, free = np.empty(depth, np.int64), np.empty(depth, np.int64), np.arange(depth)
    coming, failed, num_free = first, last, depth
    while True:
        number, sent = 0, 0
        while number < num_free and coming + number < failed:
            place, run = free[num_free - 1 - number], coming + number
            begin = run_begin(rows, firsts, run, row_bytes, offset, block)
            needed = needed_bytes(rows, firsts, run, row_bytes, offset, begin)
            request = requests[place]
            request[0], request[2], request[3] = place, np.int64(file) << 32, buffers[place].ctypes.data
            request[4], request[5] = -(-needed // block) * block, begin
            pointers[number], run_of[place] = request.ctypes.data, run
            number += 1
        while sent < number:
            taken = _syscall(_SUBMIT, context, number - sent, pointers[sent:].ctypes.data, 0, 0)
            if taken <= 0:
                failed = coming + sent
                break
            sent += taken
        coming, num_free = coming + sent, num_free - sent
        if num_free == depth:
            return failed
        in_flight = depth - num_free
        wanted = in_flight if coming >= failed else max(1, in_flight // _WAKE)
        # negative if a signal interrupts the wait, which then begins again
        ended = _syscall(_GETEVENTS, context, wanted, depth, events.ctypes.data, 0)
        for k in range(ended):
            place = events[k, 0]
            run = run_of[place]
            begin = run_begin(rows, firsts, run, row_bytes, offset, block)
            if events[k, 2] < needed_bytes(rows, firsts, run, row_bytes, offset, begin):
                failed = min(failed, run)
            else:
                copy_run(rows, slots, firsts, run, row_bytes, offset, begin, buffers[place], out)
            free[num_free] = place
            num_free += 1
        num_done[0] += max(ended, 0)
