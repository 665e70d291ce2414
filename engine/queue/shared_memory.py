"""Shared memory of processes, in anonymous files (memfd), so that nothing is left behind in whatever way a process ends.

``anonymous_file`` creates such a file. ``dumps`` pickles an object with its large arrays shared instead of copied: a worker that unpickles it maps the same
pages. Classes and functions of the running script or notebook are pickled by value, since workers cannot import them. Pickles are only passed from a process to
the workers that it started, in an anonymous file.
"""

from __future__ import annotations

import errno
import functools
import io
import logging
import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import cloudpickle
import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError

_log = logging.getLogger(__name__)

SHARE_FROM_BYTES = 1 << 16
"""Minimum size in bytes of an array that is shared. Smaller arrays are pickled by value, since a mapping costs a page and two system calls."""
_MADV_POPULATE_WRITE = 23  # constant of Linux 5.14 and later, for which Python has no name


def anonymous_file(name: str, folder: str | None = None) -> int:
    """Create an empty anonymous file that only this user can read, and return its descriptor.

    Args:
        name: name of the file in /proc.
        folder: folder on a disk for its contents; by default they are in memory, or in the folder for temporary files if the system permits no memfd.

    Raises:
        InputError: the folder cannot hold files.
    """
    if folder is None:
        try:
            return os.memfd_create(name, os.MFD_CLOEXEC)
        except OSError as error:
            if error.errno not in (
                errno.EPERM,
                errno.EACCES,
                errno.ENOSYS,
            ):  # any other error means too little memory or too few descriptors
                raise
            folder = _temporary_folder(error.strerror)
    try:
        # created with O_TMPFILE if the file system supports it, else unlinked at once; mode 0600
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise InputError(
            f"buffer_dir {folder} cannot hold the queue's files ({error.strerror}): give a folder that exists and can be written"
        ) from error


@functools.cache
def _temporary_folder(reason: str) -> str:
    folder = tempfile.gettempdir()
    _log.warning("shared memory is not available (%s): the queue uses files in %s; set buffer_dir for another folder", reason, folder)
    return folder


def shared_array(name: str, shape: tuple[int, ...], dtype: Any) -> np.memmap[Any, Any]:
    """Return an array of zeros in anonymous memory; workers that receive it see what this process writes.

    The array must have at least ``SHARE_FROM_BYTES`` bytes, since smaller arrays are copied to workers.
    """
    descriptor = anonymous_file(name)
    array = np.memmap(f"/proc/{os.getpid()}/fd/{descriptor}", dtype, "w+", shape=shape)
    weakref.finalize(array, os.close, descriptor)
    return array


def reserve(fd: int, num_bytes: int) -> mmap.mmap:
    """Enlarge the file to at least ``num_bytes``, allocate its pages and map them, so that a lack of memory raises here instead of a SIGBUS later.

    The pages are populated through the mapping first, so that they are huge pages if the system has them, and no later write faults. For 64 MiB this
    takes 6 ms with huge pages and 70 ms without; allocating alone and faulting later takes 80 ms.

    Raises:
        MemoryError: there is too little memory; the file is unchanged.
    """
    before = os.fstat(fd).st_size
    try:
        os.ftruncate(fd, max(num_bytes, before))  # the file never shrinks, since the other process may be reading it
        pages = map_file(fd)
        with suppress(OSError):  # Linux before 5.14 lacks this advice; the next call reports a lack of memory
            pages.madvise(_MADV_POPULATE_WRITE)
        os.posix_fallocate(fd, 0, len(pages))
    except OSError as error:
        os.ftruncate(fd, before)
        raise MemoryError(
            f"cannot reserve {num_bytes / 2**20:.0f} MiB of shared memory ({error.strerror}): use a smaller batch_size, fewer num_workers or "
            "a smaller prefetch_factor, or set buffer_dir to a folder on a disk"
        ) from error
    return pages


def map_file(fd: int) -> mmap.mmap:
    """Map the whole file for reading and writing, in huge pages if the system has them."""
    pages = mmap.mmap(fd, os.fstat(fd).st_size)
    with suppress(OSError):  # Linux kernels without huge pages raise an error
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def dumps(value: object) -> tuple[bytes, list[int]]:
    """Pickle ``value`` with its large arrays in shared memory.

    Returns:
        The pickle, and the descriptors that a worker must inherit with the same numbers before ``pickle.loads``. The caller closes them.
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


class _SharingPickler(cloudpickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.descriptors: list[int] = []

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.nbytes < SHARE_FROM_BYTES or value.dtype.hasobject:
            return super().reducer_override(value)
        file = mapped_file(value)
        if file is not None:
            return _attach_file, (str(file.filename), file.offset, value.dtype, value.shape)
        fd = anonymous_file("hoptrain-array")
        self.descriptors.append(fd)
        with reserve(fd, value.nbytes) as pages:
            np.ndarray(value.shape, value.dtype, buffer=pages)[...] = value
        return _attach_descriptor, (fd, value.dtype, value.shape)


def mapped_file(array: Array) -> np.memmap[Any, Any] | None:
    """Return the file mapping that ``array`` is a view of as a whole, or None.

    An array that numpy.load maps has the file mapping as its base. A slice of it does not, although NumPy gives it the file offset of the whole mapping.
    """
    source: Any = array
    while isinstance(source, np.ndarray) and not isinstance(source, np.memmap):
        source = source.base
    if not isinstance(source, np.memmap) or not isinstance(source.base, mmap.mmap):
        return None
    same = array.ctypes.data == source.ctypes.data and array.nbytes == source.nbytes and array.flags.c_contiguous
    return source if same else None


def mapped_files(*arrays: Array) -> list[np.memmap[Any, Any]]:
    """Return the file mappings that arrays are views of as a whole; other arrays are left out."""
    return [file for array in arrays if (file := mapped_file(array)) is not None]


def check_whole(files: Iterable[np.memmap[Any, Any]]) -> None:
    """Check that mapped files are not shorter than their mappings: reading past the end ends the process (SIGBUS) or gives zeros.

    If a file is truncated between this check and a read, the process still ends; its replacement then raises the error here.

    Raises:
        InputError: a file is shorter.
    """
    for file in files:
        size, needed = cast(mmap.mmap, file.base).size(), file.offset + file.nbytes  # size of the file, even if the file was deleted
        if size < needed:
            raise InputError(f"{file.filename} has {size:,} bytes, and had {needed:,}: it was cut off while it was in use; copy it again")


def _attach_file(filename: str, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    try:
        return np.memmap(filename, dtype, "r", offset, shape)
    except (OSError, ValueError) as error:
        raise InputError(f"{filename} cannot be mapped ({error}): it was removed or cut off while it was in use; copy it again") from error


def _attach_descriptor(fd: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.ndarray(shape, dtype, buffer=mmap.mmap(fd, int(np.prod(shape)) * dtype.itemsize, access=mmap.ACCESS_READ))
