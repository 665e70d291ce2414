"""Random-read rate of a disk: threads read blocks at random positions of a file, bypassing the page cache."""

from __future__ import annotations

import mmap
import os
import threading
import time

import numpy as np
from numba import types

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import BLOCK
from hoptrain.kernels.cpu import cpu_kernel

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))
_AT_ONCE = 16


@cpu_kernel
def _read(file, places, buffer):  # type: ignore[no-untyped-def]
    """Read ``len(buffer)`` bytes at each position of ``places``, and return the number of complete reads."""
    found = 0
    for i in range(len(places)):
        found += _pread(np.int32(file), buffer.ctypes.data, np.uintp(len(buffer)), places[i]) == len(buffer)
    return found


class Disk:
    """A measurement of the random-read rate of one file.

    Attributes:
        rates: reads a second in each call.
    """

    def __init__(self, path: str, threads: int, seconds: float, num_bytes: float = BLOCK) -> None:
        """Open a file.

        Args:
            path: the file.
            threads: threads that read at the same time.
            seconds: approximate duration of a call.
            num_bytes: approximate size of a read; it is rounded to whole blocks.

        Raises:
            InputError: the file system does not support O_DIRECT, or the file is smaller than one read.
        """
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            raise InputError(
                f"{path} cannot be opened with O_DIRECT ({error.strerror}): reads must bypass the page cache; put it on another file system"
            ) from error
        blocks = max(1, round(num_bytes / BLOCK))
        self._places = os.path.getsize(path) // BLOCK - blocks + 1
        if self._places < 1:
            raise InputError(f"{path} is too short: it has no {blocks * BLOCK} bytes in whole blocks; choose a larger data set")
        self._threads, self._seconds = threads, seconds
        self._buffers = [np.frombuffer(mmap.mmap(-1, blocks * BLOCK), np.uint8) for _ in range(threads)]
        self.rates: list[float] = []
        _read(self._file, np.zeros(0, np.int64), self._buffers[0])  # compiles the kernel before it is timed

    def __call__(self, call: int) -> int:
        """Read for the chosen time, append the rate to ``rates``, and return the number of reads."""
        draws, found = np.random.default_rng(call), [0] * self._threads
        begin = time.perf_counter()

        def work(thread: int, places: Array) -> None:
            for first in range(0, len(places), _AT_ONCE):
                found[thread] += _read(self._file, places[first : first + _AT_ONCE], self._buffers[thread])
                if time.perf_counter() - begin > self._seconds:
                    return

        drawn = draws.integers(0, self._places, (self._threads, 1 << 14)) * BLOCK
        threads = [threading.Thread(target=work, args=item) for item in enumerate(drawn)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.rates.append(sum(found) / (time.perf_counter() - begin))
        return sum(found)
