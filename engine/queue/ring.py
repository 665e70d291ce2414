"""Slots of shared memory that transfer batches from a worker to its trainer.

A ring belongs to one worker. The worker writes a slot, sends a message, and does not touch the slot again until the trainer returns it. So one side
owns a slot at any time, and no lock is needed.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.shared_memory import map_file, reserve

Spec = tuple[str, np.dtype[Any], tuple[int, ...]]
"""Type of the description of an array of a batch: name, dtype and shape."""
Allocate = Callable[[Sequence[Spec]], dict[str, Array]]
"""Type of a function that returns writable arrays with the given names, dtypes and shapes; their contents are undefined."""

_ALIGN = 64  # size of a cache line, and the alignment of arrays in torch and NumPy
_GRAIN = 2 << 20  # size of a huge page
_NOTHING: Array = np.empty(0, np.uint8)


def allocate_private(specs: Sequence[Spec]) -> dict[str, Array]:
    """Allocate arrays in private memory of this process."""
    return {name: np.empty(shape, dtype) for name, dtype, shape in specs}


def carve(buffer: Array, specs: Sequence[Spec]) -> dict[str, Array]:
    """Return consecutive views of a byte buffer, each aligned to a cache line."""
    views: dict[str, Array] = {}
    offset = 0
    for name, dtype, shape in specs:
        size = _size(dtype, shape)
        views[name] = buffer[offset : offset + size].view(dtype).reshape(shape)
        offset += _aligned(size)
    return views


def total_bytes(specs: Sequence[Spec]) -> int:
    """Return the bytes that ``carve`` needs."""
    return sum(_aligned(_size(dtype, shape)) for _, dtype, shape in specs)


def _size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return prod(shape) * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def slot_bytes(batch_bytes: int) -> int:
    """Return the size of a slot for a batch in bytes: a quarter more than needed, in whole huge pages."""
    return -(-batch_bytes * 5 // 4 // _GRAIN) * _GRAIN


class Slot:
    """A slot as mapped by the worker or by the trainer. It grows to the size of the largest batch so far."""

    def __init__(self, fd: int, on_map: Callable[[Array], None] | None = None) -> None:
        """Use the anonymous file ``fd``; both sides have it open. ``on_map`` is called with each mapping of it, (bytes,) uint8."""
        self.fd = fd
        self._on_map = on_map
        self._bytes: Array = np.empty(0, np.uint8)

    def writable(self, num_bytes: int) -> Array:
        """Return the worker's view, (at least num_bytes,) uint8. If the file is too small, it is enlarged.

        Raises:
            InputError: there is too little memory, or space in ``buffer_dir``.
        """
        if num_bytes > len(self._bytes):
            try:
                self._take(reserve(self.fd, slot_bytes(num_bytes)))
            except MemoryError as error:
                raise InputError(str(error)) from error
        return self._bytes

    def view(self, num_bytes: int) -> Array:
        """Return a view, (at least num_bytes,) uint8; maps the file again if the other side has enlarged it."""
        if num_bytes > len(self._bytes):
            self._take(map_file(self.fd))
        return self._bytes

    def _take(self, pages: mmap.mmap) -> None:
        self._bytes = np.frombuffer(pages, np.uint8)
        if self._on_map:
            self._on_map(self._bytes)


class Recycled:
    """An ``Allocate`` in private memory of this process; memory is reused once the last view of a batch is gone.

    The system would clear new memory page by page for every batch, which costs more than filling it. Several threads may call it.

    Attributes:
        largest: bytes of the largest batch so far.
    """

    def __init__(self, num_kept: int = 2) -> None:
        """Start without memory; up to ``num_kept`` free buffers are kept."""
        self._free: deque[Array] = deque(maxlen=num_kept)
        self.largest = 0

    def __call__(self, specs: Sequence[Spec]) -> dict[str, Array]:
        """Return writable arrays for the specs; their contents are undefined."""
        size = total_bytes(specs)
        self.largest = max(self.largest, size)
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = _NOTHING
        if len(buffer) < size:
            memory = mmap.mmap(-1, max(_GRAIN, size * 5 // 4), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.madvise(mmap.MADV_HUGEPAGE)
            buffer = np.frombuffer(memory, np.uint8)
        return carve(np.asarray(Lease(buffer, partial(self._free.append, buffer))), specs)


class Lease:
    """A slot lent to the trainer. Arrays over it keep it alive, and the slot is returned when the last of them is gone.

    A lease has the array interface and is not a NumPy array: NumPy would replace the base of a view by the base's base, except at foreign objects.
    """

    def __init__(self, buffer: Array, give_back: Callable[[], None]) -> None:
        """Lend ``buffer`` (bytes,) uint8; ``give_back``, a compiled callable, is called once, from whichever thread drops the last array."""
        self.__array_interface__ = buffer.__array_interface__
        self._buffer = buffer
        self._give_back = give_back

    # Not a Python function: Python would handle signals in it, and a Ctrl-C raised within ``__del__`` would be lost, and with it the slot.
    __del__ = property(attrgetter("_give_back"))
