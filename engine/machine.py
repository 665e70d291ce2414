"""Memory and CPU cores that this process may use, within the limits of its control group (cgroup), and glibc's malloc. Imports no NumPy."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from hoptrain.engine.errors import InputError

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt, as numbered in malloc.h
_MALLOC_OPTIONS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")


def _cgroup_folders(controller: str = "") -> list[Path]:
    """Return the folders of this process's cgroup and of its ancestors, whose limits all apply. cgroup v1 has a tree for each ``controller``."""
    try:
        lines = [line.split(":", 2) for line in (PROC / "self/cgroup").read_text().splitlines()]
    except OSError:
        lines = []
    root = CGROUP / controller
    own = next((words[2] for words in lines if len(words) == 3 and controller in words[1].split(",")), "/")
    folder = root / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def cgroup_cores() -> float | None:
    """Return the number of cores that the cgroup's CPU quota allows (v1 or v2), or None without a quota."""
    quotas = [_word(folder / "cpu.max") for folder in _cgroup_folders()]
    quotas += [f"{_word(folder / 'cpu.cfs_quota_us')} {_word(folder / 'cpu.cfs_period_us')}" for folder in _cgroup_folders("cpu")]
    parts = [words for words in map(str.split, quotas) if len(words) == 2 and words[0].isdecimal()]  # no quota is "max" in v2, -1 in v1
    return min((int(quota) / int(period) for quota, period in parts), default=None)


def _memory_limits() -> list[tuple[int, int]]:
    """Return (limit, non-reclaimable bytes in use) for each memory limit of this process's cgroups."""
    found = []
    for controller, limit, used in (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")):
        for folder in _cgroup_folders(controller):
            value = _word(folder / limit)
            if value.isdecimal() and int(value) < 1 << 60:  # no limit is "max" in v2, about 2**63 in v1
                found.append((int(value), max(0, int(_word(folder / used) or 0) - _cached_files(folder / "memory.stat"))))
    return found


def _cached_files(facts: Path) -> int:
    """Return the bytes of a cgroup's page cache. Like MemAvailable, hoptrain counts the page cache as available, since it is reclaimable."""
    sizes: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", _word(facts), re.MULTILINE))
    return sum(
        int(sizes.get(f"total_{kind}", sizes.get(kind, "0"))) for kind in ("active_file", "inactive_file")
    )  # names in cgroup v1 have the prefix total_


def _word(path: Path) -> str:
    """Return the stripped text of a file, or "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cgroup_memory() -> int | None:
    """Return the cgroup's memory limit in bytes, or None without a limit."""
    return min((limit for limit, _ in _memory_limits()), default=None)


def machine_memory() -> tuple[int, int]:
    """Return the machine's memory in bytes: total and available."""
    sizes = {key: int(kib) << 10 for key, kib in re.findall(r"(\w+):\s+(\d+) kB", (PROC / "meminfo").read_text())}
    return sizes["MemTotal"], sizes["MemAvailable"]


def available_memory() -> int:
    """Return the bytes that can still be allocated on the machine or in this process's cgroup, whichever is less."""
    return min(machine_memory()[1], *(max(limit - used, 0) for limit, used in _memory_limits()), 1 << 62)


def allowed_cores() -> int:
    """Return the number of cores in this process's CPU affinity, ignoring quotas."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """Return the number of cores that this process can use, at least 1: its CPU affinity or its cgroup's quota, whichever is less."""
    quota = cgroup_cores()
    return allowed_cores() if quota is None else max(1, min(allowed_cores(), int(quota)))


def keep_freed_memory() -> None:
    """Configure malloc to keep large freed blocks in this process, so that the system does not zero new pages for each training step.

    A training step on a CPU allocates and frees the same arrays repeatedly; new pages take up to half of its time. Blocks above 512 MiB, and free
    memory at the heap's end beyond 2 GiB, are returned to the system as before. Other free blocks stay in the process. Only glibc has this
    setting; with other C libraries nothing happens. Settings by ``MALLOC_MMAP_THRESHOLD_`` and similar variables, or for malloc in
    ``GLIBC_TUNABLES``, take precedence.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in _MALLOC_OPTIONS) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    # Older glibc versions accept at most 32 MiB. The trim threshold alone would be harmful: it switches off glibc's adaptive thresholds.
    if mallopt(_M_MMAP_THRESHOLD, 512 << 20) or mallopt(_M_MMAP_THRESHOLD, 32 << 20):
        mallopt(_M_TRIM_THRESHOLD, (2 << 30) - 1)


def check_num_nodes(num_nodes: int, most: int) -> None:
    """Raise InputError if a graph with ``num_nodes`` nodes is too large, for example because its ids have large gaps.

    Raises:
        InputError: there are more than ``most`` nodes, or the column offsets alone do not fit into memory.
    """
    if not 0 <= num_nodes <= most:
        raise InputError(f"num_nodes is {num_nodes}: a graph has 0 to {most} nodes; number them from 0 without large gaps")
    if (size := 16 * num_nodes) > (free := available_memory()):  # 16 bytes per node: an int64 offset and an int64 counter
        raise InputError(
            f"num_nodes is {num_nodes:,}: the column offsets take {size / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are available; number the "
            "nodes 0 to V - 1, for example with np.unique(edges, return_inverse=True)"
        )


def parse_size(size: float | str, option: str) -> tuple[float, int]:
    """Parse an option's size into (share, bytes), of which one is 0: "2GiB" gives (0.0, 2147483648), 0.1 gives (0.1, 0).

    Raises:
        InputError: the value is neither bytes with a unit nor a share in (0, 1].
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*([A-Za-z]*)\s*", str(size))
    try:
        number, unit = float(found[1]), found[2]  # type: ignore[index]
    except (TypeError, ValueError):
        number, unit = 0.0, ""
    if unit in _UNITS and number > 0:
        return 0.0, int(number * _UNITS[unit])
    if unit or not 0 < number <= 1:
        raise InputError(
            f"{option} is {size}: it must be a number of bytes with a unit, or a share of the rows in (0, 1]; give for example 2GiB or 0.1"
        )
    return number, 0
