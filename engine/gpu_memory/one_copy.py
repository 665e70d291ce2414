"""Host memory that the GPUs of all ranks of a machine read: one copy, in an anonymous file that each rank maps and registers with its driver."""

from __future__ import annotations

import logging
import mmap
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.gpu_memory.registered import registered
from hoptrain.engine.machine import available_memory
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, anonymous_file, mapped_file, reserve

_log = logging.getLogger(__name__)

_FILLED_A_S = 20 << 20
"""Bytes a second at which the slowest disk fills the copy."""


def one_copy(array: Array, what: str, meeting: Meeting, *, wanted: bool = True) -> Any | None:
    """The array as kernels read it, in memory that all ranks of this machine share which want it and have the same. Filled by one of them.

    The others find the file in /proc of that one, where nobody but this user sees it. It has no name, so nothing is left of it after the last
    process that maps it. Every rank of the run has to call this.

    Args:
        array: (N, ...) C-contiguous.
        what: its name, for people.
        meeting: of the ranks.
        wanted: whether this rank needs it.

    Returns:
        A device array over the mapped pages. None if the rank does not want it, is the only one on its machine that does, or if the memory
        cannot be mapped or registered, which is said; then it has to make a copy of its own.

    Raises:
        InputError: the machine has too little memory, for any of its ranks.
        RuntimeError: a rank did not come in time.
    """
    if array.nbytes < SHARE_FROM_BYTES:  # as on every other rank
        return None
    keys = meeting.exchange(f"whether it needs {what}", _key(array) if wanted else None)
    ranks = [rank for rank, key in enumerate(keys) if wanted and key == keys[meeting.rank]]
    fd, offer = -1, None
    try:
        if len(ranks) > 1 and ranks[0] == meeting.rank:
            fd, offer = _offered(array)
        offers = meeting.exchange(f"that {what} lies in host memory", offer, more_s=array.nbytes / _FILLED_A_S)
        _refuse_failures(what, array.nbytes, offers)
        found = _taken(offers[ranks[0]], array) if len(ranks) > 1 else None
        meeting.exchange(f"that it has opened {what}", found is not None)
    finally:
        if fd >= 0:
            os.close(fd)
    if offer is not None:
        _log.info("%s: %.2f GiB of host memory, one copy for the %d ranks of this machine", what, array.nbytes / 2**30, len(ranks))
    return found


def machine() -> str:
    """What processes have in common that see each other in /proc, and may open what the other has open.

    Processes with another value of ``HOPTRAIN_MACHINE`` count as on another machine: several can be tried on one.
    """
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino} {os.getuid()} {os.environ.get('HOPTRAIN_MACHINE', '')}"


def _key(array: Array) -> list[Any]:
    """Equal for ranks of one machine that have the same array: mapped from the same file, or with the same contents."""
    file = mapped_file(array)
    if file is None:
        contents = [zlib.crc32(array.reshape(-1).view(np.uint8).data)]
    else:
        stat = os.stat(str(file.filename))
        contents = [stat.st_dev, stat.st_ino, stat.st_mtime_ns, file.offset]
    return [machine(), list(array.shape), array.dtype.str, *contents]


def _offered(array: Array) -> tuple[int, dict[str, Any]]:
    """A file with the contents of an array, and where others find it; or why there is none."""
    if array.nbytes > (free := available_memory()):
        return -1, {"failed": f"{free / 2**30:.2f} GiB are free"}
    fd = anonymous_file("hoptrain-copy")
    try:
        os.fchmod(fd, 0o600)
        np.frombuffer(reserve(fd, array.nbytes), array.dtype).reshape(array.shape)[...] = array
    except (OSError, MemoryError) as error:
        os.close(fd)
        return -1, {"failed": str(error.__cause__ or error)}
    return fd, {"pid": os.getpid(), "fd": fd}


def _refuse_failures(what: str, num_bytes: int, offers: list[Any]) -> None:
    for rank, offer in enumerate(offers):
        if offer and "failed" in offer:
            raise InputError(
                f"{what}: {num_bytes / 2**30:.2f} GiB of host memory for the GPUs of rank {rank}'s machine, and {offer['failed']}: place it in "
                "device memory, or use a machine with more memory"
            )


def _taken(offer: dict[str, Any], array: Array) -> Any | None:
    """The offered file as kernels read it; None where it cannot be opened or registered."""
    try:
        fd = os.open(f"/proc/{offer['pid']}/fd/{offer['fd']}", os.O_RDWR)
    except OSError as error:
        _log.warning("memory of another rank cannot be opened (%s): this rank makes a copy of its own", error.strerror)
        return None
    try:
        return registered(pages_of(fd, array))
    finally:
        os.close(fd)


def pages_of(fd: int, array: Array) -> Callable[[bool], Array]:
    """What maps the file in the form of ``array``, for reading alone or for writing as well."""

    def pages(writable: bool) -> Array:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return np.frombuffer(mmap.mmap(fd, array.nbytes, access=access), array.dtype).reshape(array.shape)

    return pages
