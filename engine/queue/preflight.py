"""Checks before workers start: cores, open files and memory. A shortage is reported in one line instead of failing during the training."""

from __future__ import annotations

import os
import resource

from hoptrain.engine.errors import InputError, explain_hint
from hoptrain.engine.machine import available_memory, usable_cores
from hoptrain.engine.queue.ring import slot_bytes

MOST_WORKERS_A_CORE = 32
_SPARE_FILES = 64  # for files that the training opens: logs, checkpoints, libraries
_FILES_OF_SLOT = 2  # descriptors of a slot: its file, and the one that Python's mapping keeps
_FILES_BESIDE_SLOTS = 4  # descriptors of a worker: socket, lifeline pipe, stack file, and one during its start
_SPARE_BYTES = 256 << 20


def check_workers(num_workers: int) -> None:
    """Check that there are not far more workers than cores.

    Raises:
        InputError: there are more than ``MOST_WORKERS_A_CORE`` workers for each core.
    """
    cores = usable_cores()
    if num_workers > MOST_WORKERS_A_CORE * cores:
        raise InputError(
            f"num_workers is {num_workers}: each worker is a process that computes, and this process may use {cores} cores; "
            f"give at most {MOST_WORKERS_A_CORE} workers a core; one a core is fastest"
        )


def check_files(num_workers: int, num_slots: int) -> None:
    """Check that this process may open enough files for its workers.

    Raises:
        InputError: the limit of open files is too low.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:  # listing the open descriptors needs a descriptor, and none is left
        used = limit
    needed = num_workers * (_FILES_OF_SLOT * num_slots + _FILES_BESIDE_SLOTS) + _SPARE_FILES
    if used + needed > limit:
        raise InputError(
            f"{num_workers} workers need {needed} open files and {used} of {limit} are in use: "
            f"raise the limit with 'ulimit -n {used + needed}', or use fewer num_workers or less prefetch_factor" + explain_hint("files")
        )


def check_memory(num_workers: int, num_slots: int, batch_bytes: int, buffer_dir: str | None = None) -> None:
    """Check that the workers' slots fit into free memory, or into the file system of ``buffer_dir``.

    Args:
        num_workers: number of workers of this process.
        num_slots: number of slots of each worker.
        batch_bytes: approximate size of a batch in bytes.
        buffer_dir: folder of the slots' files; None for shared memory.

    Raises:
        InputError: they do not fit.
    """
    slot = slot_bytes(batch_bytes)
    needed = num_workers * num_slots * slot
    if buffer_dir is None:
        available, spare, where, remedy = available_memory(), _SPARE_BYTES, "", "or buffer_dir, a folder on a disk"
    else:
        available, spare, where, remedy = free_space(buffer_dir), 0, f" in buffer_dir {buffer_dir}", "or another buffer_dir"
    if needed + spare > available:
        raise InputError(
            f"{num_workers} workers with {num_slots} batches of {slot / 2**20:.0f} MiB each need {needed / 2**20:.0f} MiB and "
            f"{available / 2**20:.0f} MiB are free{where}: use fewer num_workers, less prefetch_factor, a smaller batch_size, {remedy}"
            + explain_hint("memory")
        )


def free_space(folder: str) -> int:
    """Return the bytes that this user can still write to the file system of a folder.

    Raises:
        InputError: the user cannot create files in the folder.
    """
    if not os.access(folder, os.W_OK | os.X_OK) or not os.path.isdir(folder):
        raise InputError(f"buffer_dir {folder} cannot hold the queue's files: give a folder that exists and can be written")
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
