"""The memory of a process and of all that it has started, as Linux counts it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path


def family(pid: int | None = None) -> list[int]:
    """Process ids: ``pid`` (by default this process) and its living descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [os.getpid() if pid is None else pid]
    for one in found:  # grows while it is walked
        found += children.get(one, [])
    return found


def usage(pids: list[int]) -> dict[str, int]:
    """Bytes of the processes together.

    Returns:
        ``peak_rss``: the sum of their largest resident sizes so far; a page that several share counts for each of them.
        ``pss``: what they hold now, a shared page counting in equal parts for those that share it: the sum is what the machine gives.
        ``shared``: the part of ``pss`` in pages that lie in more than one process.
    """
    found = {"peak_rss": 0, "pss": 0, "shared": 0}
    for pid in pids:
        with suppress(OSError):
            found["peak_rss"] += _bytes(f"/proc/{pid}/status", "VmHWM")
            pss = _bytes(f"/proc/{pid}/smaps_rollup", "Pss")
            alone = sum(_bytes(f"/proc/{pid}/smaps_rollup", name) for name in ("Private_Clean", "Private_Dirty"))
            found["pss"] += pss
            found["shared"] += max(0, pss - alone)
    return found


def _bytes(path: str, name: str) -> int:
    match = re.search(rf"^{name}:\s*(\d+) kB", Path(path).read_text(), re.MULTILINE)
    return 1024 * int(match[1]) if match else 0
