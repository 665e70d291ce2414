"""Checks of the machine: driver, limits, memory, and the folders that hoptrain writes to."""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
from pathlib import Path

from hoptrain.engine.machine import allowed_cores, cgroup_cores, cgroup_memory, machine_memory
from hoptrain.trainers.commands.checks.child import ask_child
from hoptrain.trainers.commands.checks.finding import GIB, Finding

PROC = Path("/proc")
SHM = Path("/dev/shm")
MIN_OPEN_FILES = 1024


def driver() -> str | None:
    """Return the version of the NVIDIA kernel driver, or None if none is loaded."""
    try:
        text = (PROC / "driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return match[0] if match else "unknown"


def check_shm() -> Finding:
    """Check the size of /dev/shm, which is 64 MiB in a container by default."""
    if not SHM.is_dir():
        return Finding("/dev/shm", "note", "missing: torch and NCCL cannot share memory between processes", "mount a tmpfs there")
    usage = shutil.disk_usage(SHM)
    found = f"{usage.total / GIB:.1f} GiB, {usage.free / GIB:.1f} GiB free"
    if usage.free < GIB:
        return Finding(
            "/dev/shm", "note", f"{found}: may be too small for torch and NCCL", "in a container: docker run --shm-size=8g, or --ipc=host"
        )
    return Finding("/dev/shm", "ok", found)


def check_memfd() -> Finding:
    """Check for anonymous shared memory (memfd), through which sampler processes pass batches."""
    try:
        fd = os.memfd_create("hoptrain-doctor")
        os.posix_fallocate(fd, 0, 4096)
        os.close(fd)
    except (AttributeError, OSError) as error:
        found = f"memfd is not available ({error}): batches are passed through files in {tempfile.gettempdir()}"
        return Finding("shared memory", "note", found, "use Linux 3.17 or newer, which is faster")
    return Finding("shared memory", "ok", "memfd_create works")


def _limit(value: int, unit: int = 1) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value // unit:,}"


def check_open_files() -> Finding:
    """Check the limit on open files. Each sampler process needs a handful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"limit {_limit(soft)} (hard limit {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        return Finding(
            "open files",
            "note",
            f"{found}: may be too low for many workers",
            f"run ulimit -n {MIN_OPEN_FILES} in the shell before the training",
        )
    return Finding("open files", "ok", found)


def check_locked_memory() -> Finding:
    """Report the limit on locked memory. InfiniBand needs it; CUDA's pinned memory does not count towards it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Finding("locked memory", "ok", f"limit {_limit(soft, 1024)} KiB" if soft != resource.RLIM_INFINITY else "unlimited")


def check_cores() -> Finding:
    """Check how many cores this process may use."""
    allowed = allowed_cores()
    quota = cgroup_cores()
    found = f"{allowed} of {os.cpu_count()}" + (f", cgroup quota {quota:.1f}" if quota is not None else "")
    if quota is not None and quota < allowed:
        remedy = f"use at most {max(1, int(quota))} workers and threads, or raise the quota"
        return Finding("cores", "note", f"{found}: threads beyond the quota slow one another down", remedy)
    return Finding("cores", "ok", found)


def check_memory() -> Finding:
    """Check the free memory of the machine and of the cgroup of this process."""
    total, available = machine_memory()
    limit = cgroup_memory()
    found = f"{available / GIB:.1f} GiB available of {total / GIB:.1f} GiB"
    if limit is not None and limit < total:
        found += f", cgroup limit {limit / GIB:.1f} GiB"
    if min(available, limit or available) < 2 * GIB:
        return Finding("memory", "note", f"{found}: may be too little for torch and a graph", "end other programs, or raise the limit")
    return Finding("memory", "ok", found)


def check_kernel_cache() -> Finding:
    """Check that compiled kernels can be cached in a folder that no other user can write to. Damaged files are removed."""
    code = (
        "import json; from hoptrain.kernels.machine_code import private_cache_root, remove_damaged; root = private_cache_root(); "
        "whole, removed = remove_damaged(root); print(json.dumps({'root': str(root), 'whole': whole, 'removed': removed}))"
    )
    # A child process that finds the cache folder unusable creates a substitute in this temporary folder.
    with tempfile.TemporaryDirectory() as temporary:
        facts = ask_child(code, TMPDIR=temporary)
        if "error" in facts:
            return Finding("kernel cache", "wrong", f"the kernels cannot be loaded: {facts['error']}", "see the line about numba")
        if not facts["root"].startswith(temporary):
            if facts["removed"]:
                found = f"{facts['root']}: removed {facts['removed']:,} damaged files; {facts['whole']:,} files are intact"
                return Finding("kernel cache", "note", found, "nothing: the next run compiles them again; if it recurs, check the disk")
            return Finding("kernel cache", "ok", f"{facts['root']}: {facts['whole']:,} files, all intact")
    wanted = Path(os.environ.get("HOPTRAIN_CACHE") or "~/.cache/hoptrain") / "numba"
    found = f"{wanted} is not writable, or other users can write to it or to a folder above: kernels are cached in a temporary folder"
    remedy = f"run chmod go-w on {wanted} and the folders above that you own, or set $HOPTRAIN_CACHE to a private folder"
    return Finding("kernel cache", "note", found, remedy)


def check_data() -> Finding:
    """Check the folder of data sets, $HOPTRAIN_DATA."""
    value = os.environ.get("HOPTRAIN_DATA")
    if not value:
        return Finding("$HOPTRAIN_DATA", "note", "not set: data sets are downloaded into the cache folder")
    if not Path(value).is_dir():
        return Finding("$HOPTRAIN_DATA", "wrong", f"{value} is not a folder", "create the folder, or unset the variable")
    return Finding("$HOPTRAIN_DATA", "ok", value)
