"""Memory that processes share: anonymous files without a name, so that nothing can be left behind, whatever ends a process.

``anonymous_file`` makes one; ``dumps`` pickles an object so that its large arrays are shared by reference instead of copied: a worker that
unpickles it maps the same pages. The pickles travel only from a process to the workers it started itself, on a private socket.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array

SHARE_FROM_BYTES = 1 << 16
"""Smaller arrays are pickled by value: a mapping costs a page and two system calls."""


def anonymous_file(name: str) -> int:
    """A new empty file in memory, readable by this user alone; returns its descriptor. ``name`` shows up in /proc only."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix=name) as file:  # no memfd on this system: an unlinked file, mode 0600
        return os.dup(file.fileno())


def reserve(fd: int, num_bytes: int) -> None:
    """Grow the file to ``num_bytes`` and allocate its pages now, so that lack of memory is an error here and not a SIGBUS later."""
    try:
        os.posix_fallocate(fd, 0, num_bytes)
    except OSError as error:
        raise MemoryError(
            f"cannot reserve {num_bytes / 2**20:.0f} MiB of shared memory ({error.strerror}): use a smaller batch_size, fewer num_workers or less prefetch"
        ) from error


def dumps(value: object) -> tuple[bytes, list[int]]:
    """Pickle ``value`` with its large arrays in shared memory.

    Returns:
        The pickle, and the descriptors that a worker must inherit (same numbers) before it calls ``pickle.loads``. The caller closes them.
    """
    stream = io.BytesIO()
    pickler = _SharingPickler(stream)
    try:
        pickler.dump(value)
    except BaseException:
        for fd in pickler.descriptors:
            os.close(fd)
        raise
    return stream.getvalue(), pickler.descriptors


class _SharingPickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.descriptors: list[int] = []

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.nbytes < SHARE_FROM_BYTES or value.dtype.hasobject:
            return NotImplemented
        file = _mapped_file(value)
        if file is not None:
            return _attach_file, (str(file.filename), file.offset, value.dtype, value.shape)
        fd = anonymous_file("hoptrain-array")
        self.descriptors.append(fd)
        reserve(fd, value.nbytes)
        with mmap.mmap(fd, value.nbytes) as pages:
            np.ndarray(value.shape, value.dtype, buffer=pages)[...] = value
        return _attach_descriptor, (fd, value.dtype, value.shape)


def _mapped_file(array: Array) -> np.memmap[Any, Any] | None:
    """The mapping that ``array`` is a view of the whole of, if any.

    The array that numpy.load maps has the mapping itself as its base. A slice of it has not, and NumPy leaves the whole file's offset on it.
    """
    source: Any = array
    while isinstance(source, np.ndarray) and not isinstance(source, np.memmap):
        source = source.base
    if not isinstance(source, np.memmap) or not isinstance(source.base, mmap.mmap):
        return None
    same = array.ctypes.data == source.ctypes.data and array.nbytes == source.nbytes and array.flags.c_contiguous
    return source if same else None


def _attach_file(filename: str, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.memmap(filename, dtype, "r", offset, shape)


def _attach_descriptor(fd: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.ndarray(shape, dtype, buffer=mmap.mmap(fd, int(np.prod(shape)) * dtype.itemsize, access=mmap.ACCESS_READ))
