"""Information about processes on Linux: descendants, CPU time and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # installed with PyG, which depends on it


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return the process ``pid`` (by default this process) and its living descendants; an empty list if the process no longer exists."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def cpu_seconds(found: Sequence[psutil.Process], *, ended_children: bool = False) -> float:
    """Return the total CPU seconds of living processes. With ``ended_children``, include children that have ended and that their parents have waited for."""
    total = 0.0
    for process in found:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[: 4 if ended_children else 2])
    return total


def memory(found: Sequence[psutil.Process]) -> dict[str, int]:
    """Return the memory of the processes in bytes.

    Returns:
        ``peak_rss``: the sum of the processes' peak resident set sizes; a page that several share counts for each of them.
        ``pss``: the current proportional set size; a page shared by n processes counts 1/n for each, so that the sum is the memory used.
        ``shared``: the part of ``pss`` in pages that several processes share.
    """
    total = {"peak_rss": 0, "pss": 0, "shared": 0}
    for process in found:
        with suppress(psutil.Error, OSError):
            used = process.memory_full_info()
            peak = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
            total["peak_rss"] += 1024 * int(peak[1]) if peak else 0
            total["pss"] += used.pss
            total["shared"] += max(0, used.pss - used.uss)
    return total
