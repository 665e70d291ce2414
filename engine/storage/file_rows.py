"""``FileRows``, which reads rows of an array from its file on demand: several reads at once, and with O_DIRECT if the file system supports it.

The file is not memory-mapped, so if it is truncated or its device fails, a read raises an error instead of SIGBUS. Rows in neighbouring blocks are read
together. With O_DIRECT one thread has all reads in flight (``hoptrain.kernels.cpu.storage.aio``); otherwise each read in flight has a thread.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from itertools import count
from math import prod
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.deadline import Deadline
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.read_buffers import ReadBuffers, has_at_once
from hoptrain.engine.storage.shared_rows import LocalFeatures
from hoptrain.kernels.cpu.storage import aio
from hoptrain.kernels.cpu.storage import reads as kernels

BLOCK = 4096
"""Block size in bytes; O_DIRECT reads begin and end at multiples of it."""
_THREADS = 32
"""Maximum number of threads that read, if one thread cannot have several reads in flight."""
_MOST, _GAP = 256 << 10, 16 << 10
"""Maximum size in bytes of a read of several rows, and maximum gap in bytes between two rows of one read."""
_PIECE = 32
"""Maximum number of reads that a thread takes at a time from the list of all reads."""
LOOK_S = 0.5
"""Seconds between two checks whether reads make progress."""


class StoredRows(Protocol):
    """A feature table (V, F) whose rows are read when they are needed, directly or into a cache. It replaces an array in a data set.

    To read features from another storage, inherit from this class and define the attributes below and ``read``. Worker processes get a pickled copy.

    Attributes:
        path: path of the file or folder, or another address. Ranks whose tables have the same path share a cache.
        shape: shape of the table, (V, ...).
        dtype: data type of the table.
        row_bytes: bytes of a row.
        own: rows of this machine's partition, which are memory-mapped and not cached; None without partitions.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    row_bytes: int
    own: LocalFeatures | None = None

    def __len__(self) -> int:
        """Return V, the number of rows."""
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole table."""
        return len(self) * self.row_bytes

    @property
    def num_reads(self) -> int:
        """Number of reads so far, for the logs."""
        return 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all reads so far."""
        return 0

    @property
    def num_elsewhere(self) -> int:
        """Number of rows that may need slots in a cache: the rows that are not in this machine's partition."""
        return self.shape[0]

    def elsewhere(self, ids: Array) -> Array:
        """Return the elements of ``ids`` (N,) whose rows need slots in a cache."""
        return ids

    def read(self, rows: Array, slots: Array, out: Array, meanwhile: Callable[[], None] | None = None) -> None:
        """Read distinct rows into a cache, or into a batch.

        Args:
            rows: (M,) row indices in [0, V), ascending; may be empty.
            slots: (M,) row of ``out`` that each row is written to.
            out: (N, row_bytes) uint8 buffer that receives the rows.
            meanwhile: function to call once, while the reads are in progress or after them.
        """

    def gather(self, ids: Array, out: Array, *_: Any) -> None:
        """Read ``out[i] = table[ids[i]]`` without a cache. Each distinct row is read once."""
        rows, first, place = np.unique(ids, return_index=True, return_inverse=True)
        as_bytes = out.view(np.uint8).reshape(len(ids), self.row_bytes)
        self.read(rows, first, as_bytes)
        again = np.flatnonzero(first[place] != np.arange(len(ids)))
        as_bytes[again] = as_bytes[first[place[again]]]

    def take(self, ids: Array) -> Array:
        """Read the rows (N, F) of ``ids`` (N,) without a cache, for evaluation."""
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        self.gather(ids, out)
        return out

    def finish(self) -> None:
        """Do nothing. A table on several machines overrides this, since all ranks must finish reading together."""
        return


class FileRows(StoredRows):
    """A table (V, ...) in a file, which is opened at the first read. Pickling transfers only the path and the layout.

    Attributes:
        path: path of the file.
        offset: byte at which row 0 begins.
        shape: shape of the table, (V, ...).
        dtype: data type of the table.
        num_reads: number of reads of the device so far.
        num_bytes: bytes of all reads so far.
        stall_s: seconds without a finished read after which the device counts as stopped.
    """

    stall_s: float = 60.0
    num_reads: int = 0
    num_bytes: int = 0

    def __init__(self, path: str, offset: int, shape: tuple[int, ...], dtype: Any) -> None:
        """Store path and layout; the file is opened later."""
        self.path: str = path
        self.offset: int = offset
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.row_bytes: int = prod(shape[1:]) * self.dtype.itemsize
        self._num_done: Array = np.zeros(1, np.int64)

    @classmethod
    def of(cls, array: Array, what: str) -> FileRows:
        """Return the table in the file that an array is memory-mapped from.

        Raises:
            InputError: the array is not mapped from a file.
        """
        file = mapped_file(array)
        if file is None:
            raise InputError(
                f"{what} are in memory: rows must be read from the file of a data set that was opened from a folder; "
                "save it (data.save) and open the folder"
            )
        return cls(str(file.filename), file.offset, array.shape, array.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRows, (self.path, self.offset, self.shape, self.dtype)

    @cached_property
    def _file(self) -> int:
        """File descriptor, opened at first access and with O_DIRECT if a test read succeeds. It is closed with the last reference to this object."""
        try:
            try:
                file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
                weakref.finalize(self, os.close, file).atexit = False
                os.preadv(file, [mmap.mmap(-1, BLOCK)], 0)
            except OSError:  # the file system does not support O_DIRECT
                file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, file).atexit = False
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        except OSError as error:
            raise InputError(f"{self.path} cannot be opened ({error.strerror}): rows are read from it; restore it") from error
        return file

    def read(self, rows: Array, slots: Array, out: Array, meanwhile: Callable[[], None] | None = None) -> None:
        """Read ``out[slots[i]] = table[rows[i]]``.

        Args:
            rows: (M,) distinct rows in [0, V), ascending.
            slots: (M,) row of ``out`` that each row is written to.
            out: (N, row_bytes) uint8 buffer that receives the rows.
            meanwhile: function that is called once, while the reads are in progress.

        Raises:
            InputError: the file is too short, or a read fails or does not end.
        """
        firsts, number = self._runs(rows)
        piece_reads = number if self._is_at_once else max(1, min(_PIECE, number // (2 * _THREADS)))
        pieces, tickets, done = -(-number // max(1, piece_reads)), count(), SimpleQueue[Exception | None]()
        file = self._file

        def work(own: ReadBuffers) -> None:
            while (piece := next(tickets)) < pieces:
                try:
                    runs = range(piece * piece_reads, min((piece + 1) * piece_reads, number))
                    self._read_piece(file, rows, slots, firsts, runs, own, out)
                    done.put(None)
                except Exception as error:
                    done.put(error)
            own.give_back()

        for _ in range(min(_THREADS, pieces)):
            own = ReadBuffers.take(self._is_at_once, max(_MOST, self.row_bytes + 2 * BLOCK))
            # a daemon, so that a read that hangs does not block the exit
            threading.Thread(target=work, args=(own,), daemon=True).start()
        if meanwhile is not None:
            meanwhile()
        for _ in range(pieces):
            error = self._result(done)
            if error is not None:
                raise error

    @cached_property
    def _is_at_once(self) -> bool:
        """True if one thread has several reads in flight. For a file without O_DIRECT they would be performed one after another."""
        return bool(fcntl.fcntl(self._file, fcntl.F_GETFL) & os.O_DIRECT) and has_at_once()

    def _runs(self, rows: Array) -> tuple[Array, int]:
        """Return the index in ``rows`` of the first row of each read, with M at the end, and the number of reads; count them."""
        firsts = np.empty(len(rows) + 1, np.int64)
        number = kernels.extents(rows, self.row_bytes, self.offset, BLOCK, _GAP, _MOST, firsts) if len(rows) else 0
        begins = self._begin(rows[firsts[:number]])
        ends = -(-(self.offset + (rows[firsts[1 : number + 1] - 1].astype(np.int64) + 1) * self.row_bytes) // BLOCK) * BLOCK
        self.num_reads += number
        self.num_bytes += int((ends - begins).sum())
        return firsts, number

    def _result(self, done: SimpleQueue[Exception | None]) -> Exception | None:
        patience, before = Deadline(self.stall_s), int(self._num_done[0])
        while not patience.is_over():
            try:
                return done.get(timeout=LOOK_S)
            except Empty:
                if self._num_done[0] != before:
                    patience, before = Deadline(self.stall_s), int(self._num_done[0])
        return InputError(
            f"{self.path}: no read has ended for {self.stall_s:g} s: its device has stopped; see the system's log (dmesg), or move the folder"
        )

    def _read_piece(self, file: int, rows: Array, slots: Array, firsts: Array, runs: range, own: ReadBuffers, out: Array) -> None:
        first, layout = runs.start, (self.row_bytes, self.offset, BLOCK)
        if own.context:
            first = aio.read_at_once(own.context, file, rows, slots, *layout, firsts, first, runs.stop, own.buffers, out, self._num_done)
        buffer = own.buffers[0]
        while first < runs.stop:
            first = kernels.read_extents(file, rows, slots, *layout, firsts, first, runs.stop, buffer, out)
            if first < runs.stop:  # the read may have been interrupted: then Python's read continues it, or raises the error
                self._check_run(file, rows[firsts[first]], rows[firsts[first + 1] - 1], buffer)

    def _begin(self, rows: Any) -> Any:
        """Return the block-aligned offsets in bytes at which reads begin whose first rows are ``rows``."""
        return (self.offset + np.asarray(rows, np.int64) * self.row_bytes) // BLOCK * BLOCK

    def _check_run(self, file: int, first_row: int, last_row: int, buffer: Array) -> None:
        begin = int(self._begin(first_row))
        needed = self.offset + (int(last_row) + 1) * self.row_bytes - begin
        try:
            found = os.preadv(file, [buffer[: -(-needed // BLOCK) * BLOCK].data], begin)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read at byte {begin:,} ({error.strerror}): rows are read from it; check its disk, or copy it again"
            ) from error
        if found < needed:
            raise InputError(
                f"{self.path} ends at byte {os.fstat(file).st_size:,}, and row {int(last_row):,} at {begin + needed:,}: it was cut off while it was in "
                "use; convert or copy it again"
            )
