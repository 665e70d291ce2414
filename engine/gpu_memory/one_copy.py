"""Host memory that the GPUs of all ranks of a machine read: one copy in an anonymous file, which each rank maps and registers with CUDA."""

from __future__ import annotations

import logging
import mmap
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.gpu_memory.registered import registered
from hoptrain.engine.machine import available_memory
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, anonymous_file, mapped_file, reserve

_log = logging.getLogger(__name__)

_FILLED_A_S = 20 << 20
"""Throughput of the slowest expected disk, in bytes per second. It determines how long ranks wait for the shared copy to be filled."""


def one_copy(array: Array, what: str, meeting: Meeting, *, wanted: bool = True) -> Any | None:
    """Share one copy of an array, in host memory that kernels read, among the ranks of this machine that want it and have the same array.

    One rank fills an anonymous file with the copy. The other ranks open the file through /proc of that rank, where only this user can see it. Nothing is left
    after the last process that maps the file. Every rank of the run must call this.

    Args:
        array: (N, ...) array to share, C-contiguous.
        what: name of the array in messages.
        meeting: all-gather among the ranks.
        wanted: whether this rank needs the array.

    Returns:
        A device array over the mapped pages. None if this rank does not want it, if no other rank on its machine does, or if the memory cannot be mapped
        or registered, which is logged; in these cases the rank must make its own copy.

    Raises:
        InputError: the machine of any rank has too little memory.
        RuntimeError: a rank did not respond in time.
    """
    if array.nbytes < SHARE_FROM_BYTES:  # this test has the same outcome on all ranks
        return None
    keys = meeting.exchange(f"whether it needs {what}", _key(array) if wanted else None)
    ranks = [rank for rank, key in enumerate(keys) if wanted and key == keys[meeting.rank]]
    fd, offer = -1, None
    try:
        if len(ranks) > 1 and ranks[0] == meeting.rank:
            fd, offer = _offered(array)
        offers = meeting.exchange(f"that {what} is in host memory", offer, more_s=array.nbytes / _FILLED_A_S)
        _refuse_failures(what, array.nbytes, offers)
        found = _taken(offers[ranks[0]], array) if len(ranks) > 1 else None
        meeting.exchange(f"that it has opened {what}", found is not None)
    finally:
        if fd >= 0:
            os.close(fd)
    if offer is not None:
        _log.info("%s: %.2f GiB of host memory, shared by the %d ranks of this machine", what, array.nbytes / 2**30, len(ranks))
    return found


def machine() -> str:
    """Return an id that is equal for processes that see each other in /proc and may open each other's files.

    Processes with different values of ``HOPTRAIN_MACHINE`` count as on different machines, so that several can be tested on one.
    """
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino} {os.getuid()} {os.environ.get('HOPTRAIN_MACHINE', '')}"


def _key(array: Array) -> list[Any]:
    """Return a key that is equal on ranks of one machine whose arrays are mapped from the same file or have equal contents."""
    file = mapped_file(array)
    if file is None:
        contents = [zlib.crc32(array.reshape(-1).view(np.uint8).data)]
    else:
        stat = os.stat(str(file.filename))
        contents = [stat.st_dev, stat.st_ino, stat.st_mtime_ns, file.offset]
    return [machine(), list(array.shape), array.dtype.str, *contents]


def _offered(array: Array) -> tuple[int, dict[str, Any]]:
    """Create a file with an array's contents. Return the file's descriptor and the location for other ranks; on failure -1 and the reason."""
    if array.nbytes > (free := available_memory()):
        return -1, {"failed": f"{free / 2**30:.2f} GiB are free"}
    fd = anonymous_file("hoptrain-copy")
    try:
        os.fchmod(fd, 0o600)
        np.frombuffer(reserve(fd, array.nbytes), array.dtype).reshape(array.shape)[...] = array
    except (OSError, MemoryError) as error:
        os.close(fd)
        return -1, {"failed": one_line(error.__cause__ or error)}
    return fd, {"pid": os.getpid(), "fd": fd}


def _refuse_failures(what: str, num_bytes: int, offers: list[Any]) -> None:
    for rank, offer in enumerate(offers):
        if offer and "failed" in offer:
            raise InputError(
                f"{what}: {num_bytes / 2**30:.2f} GiB of host memory are needed for the GPUs of rank {rank}'s machine, but {offer['failed']}: place it "
                "in device memory, or use a machine with more memory"
            )


def _taken(offer: dict[str, Any], array: Array) -> Any | None:
    """Return the file of another rank as a device array; None if it cannot be opened or registered."""
    try:
        fd = os.open(f"/proc/{offer['pid']}/fd/{offer['fd']}", os.O_RDWR)
    except OSError as error:
        _log.warning("memory of another rank cannot be opened (%s): this rank makes its own copy", error.strerror)
        return None
    try:
        return registered(pages_of(fd, array))
    finally:
        os.close(fd)


def pages_of(fd: int, array: Array) -> Callable[[bool], Array]:
    """Return a function that maps a file with the shape and dtype of ``array``, writable if its argument is True."""

    def pages(writable: bool) -> Array:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return np.frombuffer(mmap.mmap(fd, array.nbytes, access=access), array.dtype).reshape(array.shape)

    return pages
