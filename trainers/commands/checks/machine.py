"""The machine: its driver, its limits, its memory, and the folders that hoptrain writes."""

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
    """Version of the NVIDIA kernel driver, or None without one."""
    try:
        text = (PROC / "driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return match[0] if match else "unknown"


def check_shm() -> Finding:
    """Size of /dev/shm; containers get 64 MiB unless told otherwise."""
    if not SHM.is_dir():
        return Finding("/dev/shm", "note", "absent: torch and NCCL cannot share memory between processes", "mount a tmpfs there")
    usage = shutil.disk_usage(SHM)
    found = f"{usage.total / GIB:.1f} GiB, {usage.free / GIB:.1f} GiB free"
    if usage.free < GIB:
        return Finding("/dev/shm", "note", f"{found}: tight for torch and NCCL", "in a container: docker run --shm-size=8g, or --ipc=host")
    return Finding("/dev/shm", "ok", found)


def check_memfd() -> Finding:
    """Anonymous memory files, which carry the batches of the sampler processes."""
    try:
        fd = os.memfd_create("hoptrain-doctor")
        os.posix_fallocate(fd, 0, 4096)
        os.close(fd)
    except (AttributeError, OSError) as error:
        found = f"not available ({error}): batches travel through files in {tempfile.gettempdir()}"
        return Finding("shared memory", "note", found, "use Linux 3.17 or newer for the faster way")
    return Finding("shared memory", "ok", "memfd_create works")


def _limit(value: int, unit: int = 1) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value // unit:,}"


def check_open_files() -> Finding:
    """The limit of open files; each sampler process takes a handful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"at most {_limit(soft)} (hard limit {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        return Finding("open files", "note", f"{found}: few for many workers", f"ulimit -n {MIN_OPEN_FILES} or more, before the start")
    return Finding("open files", "ok", found)


def check_locked_memory() -> Finding:
    """The limit of locked memory; InfiniBand needs it, CUDA's pinned memory does not count."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Finding("locked memory", "ok", f"at most {_limit(soft, 1024)} KiB" if soft != resource.RLIM_INFINITY else "unlimited")


def check_cores() -> Finding:
    """Cores that this process may use."""
    allowed = allowed_cores()
    quota = cgroup_cores()
    found = f"{allowed} of {os.cpu_count()}" + (f", cgroup quota {quota:.1f}" if quota is not None else "")
    if quota is not None and quota < allowed:
        remedy = f"give no more than {max(1, int(quota))} workers and threads, or raise the quota"
        return Finding("cores", "note", f"{found}: more threads than the quota wait for one another", remedy)
    return Finding("cores", "ok", found)


def check_memory() -> Finding:
    """Memory of the machine and of our cgroup."""
    total, available = machine_memory()
    limit = cgroup_memory()
    found = f"{available / GIB:.1f} GiB available of {total / GIB:.1f} GiB"
    if limit is not None and limit < total:
        found += f", cgroup limit {limit / GIB:.1f} GiB"
    if min(available, limit or available) < 2 * GIB:
        return Finding("memory", "note", f"{found}: little for torch and a graph", "end other programs, or raise the limit")
    return Finding("memory", "ok", found)


def check_kernel_cache() -> Finding:
    """Return whether compiled kernels can be kept in a folder that nobody else can write; removes those that are damaged."""
    code = (
        "import json; from hoptrain.kernels.machine_code import private_cache_root, remove_damaged; root = private_cache_root(); "
        "whole, removed = remove_damaged(root); print(json.dumps({'root': str(root), 'whole': whole, 'removed': removed}))"
    )
    with tempfile.TemporaryDirectory() as temporary:  # where the child would put a substitute
        facts = ask_child(code, TMPDIR=temporary)
        if "error" in facts:
            return Finding("kernel cache", "wrong", f"the kernels do not load: {facts['error']}", "see numba above")
        if not facts["root"].startswith(temporary):
            if facts["removed"]:
                found = f"{facts['root']}: {facts['removed']:,} damaged files were removed, {facts['whole']:,} are whole"
                return Finding(
                    "kernel cache", "note", found, "the next run compiles what is missing; if it happens again, look at the disk"
                )
            return Finding("kernel cache", "ok", f"{facts['root']}: {facts['whole']:,} files, all whole")
    wanted = Path(os.environ.get("HOPTRAIN_CACHE") or "~/.cache/hoptrain") / "numba"
    found = f"{wanted} cannot be used, or others may write it or a folder above it: compiled kernels go to a temporary folder"
    remedy = f"chmod go-w {wanted} and the folders above it that are yours, or set $HOPTRAIN_CACHE to a folder of your own"
    return Finding("kernel cache", "note", found, remedy)


def check_data() -> Finding:
    """Where data sets are looked for."""
    value = os.environ.get("HOPTRAIN_DATA")
    if not value:
        return Finding("$HOPTRAIN_DATA", "note", "not set: data sets are downloaded into the cache folder")
    if not Path(value).is_dir():
        return Finding("$HOPTRAIN_DATA", "wrong", f"{value} is not a folder", "make the folder, or unset the variable")
    return Finding("$HOPTRAIN_DATA", "ok", value)
