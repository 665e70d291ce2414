"""Processes as Linux lists them: who started whom, their processor time, and their memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(path: Path) -> list[str]:
    """The fields of a ``stat`` file behind the name, which may hold anything: state, parent, group, session, and so on.

    Raises:
        OSError: the process is gone.
    """
    return path.read_text().rpartition(")")[2].split()


def processes() -> Iterator[tuple[int, list[str]]]:
    """Id and ``stat`` of every process; one that ends meanwhile is left out."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if fields := stat(path):
                yield int(path.parent.name), fields


def cpu_seconds(fields: list[str], *, ended_children: bool = False) -> float:
    """Processor time of a process by its ``stat``; on demand with that of the children that it has seen the end of."""
    return sum(map(int, fields[11 : 15 if ended_children else 13])) / _TICKS


def family(pid: int | None = None) -> list[int]:
    """Process ids: ``pid`` (by default this process) and its living descendants."""
    children: dict[int, list[int]] = {}
    for one, fields in processes():
        children.setdefault(int(fields[1]), []).append(one)
    found = [os.getpid() if pid is None else pid]
    for one in found:  # grows while it is walked
        found += children.get(one, [])
    return found


def memory(pids: list[int]) -> dict[str, int]:
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
