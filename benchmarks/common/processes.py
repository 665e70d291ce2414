"""Processes as Linux lists them: who started whom, their processor time, and their memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # PyG needs it too


def family(pid: int | None = None) -> list[psutil.Process]:
    """``pid`` (by default this process) and its living descendants; none if it is gone."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def cpu_seconds(found: Sequence[psutil.Process], *, ended_children: bool = False) -> float:
    """Processor time of living processes together; on demand with that of the children that they have seen the end of."""
    total = 0.0
    for process in found:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[: 4 if ended_children else 2])
    return total


def memory(found: Sequence[psutil.Process]) -> dict[str, int]:
    """Bytes of the processes together.

    Returns:
        ``peak_rss``: the sum of their largest resident sizes so far; a page that several share counts for each of them.
        ``pss``: what they hold now, a shared page counting in equal parts for those that share it: the sum is what the machine gives.
        ``shared``: the part of ``pss`` in pages that lie in more than one process.
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
