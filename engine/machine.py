"""What this process may use of its machine, memory and cores within the limits of its control group, and how. Imports no NumPy."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from hoptrain.engine.errors import InputError

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_MALLOC_OPTIONS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")


def _cgroup_folders(controller: str = "") -> list[Path]:
    """The folders of this process's cgroup, from its own to the root: a limit in any of them binds. Version 1 has a tree for each ``controller``."""
    try:
        lines = [line.split(":", 2) for line in (PROC / "self/cgroup").read_text().splitlines()]
    except OSError:
        lines = []
    root = CGROUP / controller
    own = next((words[2] for words in lines if len(words) == 3 and controller in words[1].split(",")), "/")
    folder = root / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def cgroup_cores() -> float | None:
    """Cores that the cgroup's quota allows (version 2 or 1), or None without a quota."""
    quotas = [_word(folder / "cpu.max") for folder in _cgroup_folders()]
    quotas += [f"{_word(folder / 'cpu.cfs_quota_us')} {_word(folder / 'cpu.cfs_period_us')}" for folder in _cgroup_folders("cpu")]
    parts = [words for words in map(str.split, quotas) if len(words) == 2 and words[0].isdecimal()]  # none is "max", or -1
    return min((int(quota) / int(period) for quota, period in parts), default=None)


def _memory_limits() -> list[tuple[int, int]]:
    """Bytes that are allowed, and those in use which cannot be had back, for each limit that binds us."""
    found = []
    for controller, limit, used in (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")):
        for folder in _cgroup_folders(controller):
            value = _word(folder / limit)
            if value.isdecimal() and int(value) < 1 << 60:  # version 2 writes none as "max", version 1 as about 2**63
                found.append((int(value), max(0, int(_word(folder / used) or 0) - _cached_files(folder / "memory.stat"))))
    return found


def _cached_files(facts: Path) -> int:
    """Bytes of files that a group's page cache holds, which give way to what is allocated: MemAvailable counts those of the machine as free, too."""
    sizes: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", _word(facts), re.MULTILINE))
    return sum(int(sizes.get(f"total_{kind}", sizes.get(kind, "0"))) for kind in ("active_file", "inactive_file"))  # total_: of version 1


def _word(path: Path) -> str:
    """What the file holds, nothing if there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cgroup_memory() -> int | None:
    """Bytes that the cgroup allows, or None without a limit."""
    return min((limit for limit, _ in _memory_limits()), default=None)


def machine_memory() -> tuple[int, int]:
    """Bytes of the machine: all, and those that can still be allocated."""
    sizes = {key: int(kib) << 10 for key, kib in re.findall(r"(\w+):\s+(\d+) kB", (PROC / "meminfo").read_text())}
    return sizes["MemTotal"], sizes["MemAvailable"]


def available_memory() -> int:
    """Bytes that can still be allocated: of the machine, or of this process's control group if that is less."""
    return min(machine_memory()[1], *(max(limit - used, 0) for limit, used in _memory_limits()), 1 << 62)


def allowed_cores() -> int:
    """Cores that this process may run on, quota aside."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """Cores that this process may keep busy, at least 1: those that it may run on, or the whole cores of its cgroup's quota if these are fewer."""
    quota = cgroup_cores()
    return allowed_cores() if quota is None else max(1, min(allowed_cores(), int(quota)))


def keep_freed_memory() -> None:
    """Let this process use large blocks of memory that it freed for those that it wants next, where the system would fill pages with zeros each time.

    A training step on a CPU takes and frees the same arrays again and again, and new pages cost up to half of its time. Blocks above 512 MiB, and
    what is free at the heap's end beyond 2 GiB, go back to the system as before; what is free in its middle stays with the process. It is a
    setting of glibc, and nothing elsewhere; one that the user has made by ``MALLOC_MMAP_THRESHOLD_`` and its like, or of malloc by
    ``GLIBC_TUNABLES``, stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in _MALLOC_OPTIONS) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return
    # An older glibc refuses more than 32 MiB. Where nothing is taken the second call alone would do harm: thresholds that adapt themselves would be fixed.
    if mallopt(_M_MMAP_THRESHOLD, 512 << 20) or mallopt(_M_MMAP_THRESHOLD, 32 << 20):
        mallopt(_M_TRIM_THRESHOLD, (2 << 30) - 1)


def check_num_nodes(num_nodes: int, most: int) -> None:
    """Refuse a number of nodes whose columns' offsets alone do not fit into memory, as ids with large gaps ask for.

    Raises:
        InputError: there are more than ``most``, or their offsets do not fit.
    """
    if not 0 <= num_nodes <= most:
        raise InputError(f"num_nodes is {num_nodes}: a graph has 0 to {most} nodes; number them from 0 without large gaps")
    if (size := 16 * num_nodes) > (free := available_memory()):  # the offsets, and what counts them
        raise InputError(
            f"num_nodes is {num_nodes:,}: offsets of so many nodes take {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are available; number the "
            "nodes 0 to V - 1, as np.unique(edges, return_inverse=True) does"
        )


def parse_size(size: float | str, option: str) -> tuple[float, int]:
    """Return share and bytes, one of them 0, of the value of an option: "2GiB" is (0.0, 2147483648), 0.1 is (0.1, 0).

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
        raise InputError(f"{option} is {size}: it is bytes such as 2GiB, or a share of the rows such as 0.1; correct it")
    return number, 0
