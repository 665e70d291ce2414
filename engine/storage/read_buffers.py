"""``ReadBuffers``, the memory and the context of a thread that reads files. All tables of a process share them, since it reads one table after another."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.storage import aio

DEPTH = 64
"""Maximum number of asynchronous reads in flight."""
LONGEST = 264 << 10
"""Size in bytes of a buffer that is kept for later reads. Longer ones are freed."""
_MOST_BYTES = 64 << 20
"""Maximum bytes of all buffers of a thread, which limits the reads in flight if rows are long."""


class ReadBuffers(NamedTuple):
    """The buffers of a thread for its reads in flight.

    Attributes:
        context: context for asynchronous reads (``hoptrain.kernels.cpu.storage.aio``); 0 to read into the first buffer, one read after another.
        buffers: (D, bytes) uint8, aligned to blocks.
    """

    context: int
    buffers: Array

    @classmethod
    def take(cls, is_at_once: bool, num_bytes: int) -> ReadBuffers:
        """Return buffers of at least ``num_bytes`` bytes: several and a context if ``is_at_once``, otherwise one. ``give_back`` returns them."""
        spare = _SPARE[is_at_once]
        with suppress(IndexError):  # raised if none is left
            if num_bytes <= LONGEST:
                return spare.pop()
        size = max(num_bytes, LONGEST)
        depth = max(1, min(DEPTH, _MOST_BYTES // size)) if is_at_once else 1
        return cls(aio.setup(depth) if is_at_once else 0, _aligned(depth, size))

    def give_back(self) -> None:
        """Keep the buffers for later reads. Not called while a read may still write into them."""
        if self.buffers.shape[1] <= LONGEST:
            _SPARE[bool(self.context)].append(self)
        else:
            aio.destroy(self.context)


_SPARE: dict[bool, list[ReadBuffers]] = {True: [], False: []}
os.register_at_fork(after_in_child=_SPARE[True].clear)  # a fork has no contexts


@cache
def has_at_once() -> bool:
    """Return whether the system permits asynchronous reads; some containers forbid the system call."""
    context = aio.setup(1)
    aio.destroy(context)
    return context != 0


def _aligned(number: int, num_bytes: int) -> Array:
    """Return buffers (number, num_bytes) uint8, in huge pages, which the kernel pins faster."""
    size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, number * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # Linux kernels without huge pages raise an error
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).reshape(number, size)
