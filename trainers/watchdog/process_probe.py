"""Observation of another process of this user through /proc: whether it runs, is idle or is stopped, and how it ended."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path

_STATE, _CPU, _STARTED, _EXIT_CODE = 0, slice(11, 13), 19, 49  # indices of the fields of /proc/PID/stat after the name
_GET_INFO, _INFO_EXIT = 0xC040FF0B, 8  # PIDFD_GET_INFO and PIDFD_INFO_EXIT of Linux 6.15, for which Python has no names
_INFO = struct.Struct("Q52xi")
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessProbe:
    """A probe of one process. Its attributes describe the process at the last call of ``look``.

    Attributes:
        is_gone: the process has ended.
        is_stopped: the process was stopped by a signal. A stop by a debugger does not count, since it is intended.
        is_still: the process was idle since the last ``look_for_work``: it did not run, wait for a disk, or have child processes.
        end: a file descriptor that becomes readable when the process ends; None if the kernel has no pidfd.
    """

    def __init__(self, pid: int) -> None:
        """Start to observe the process with this id."""
        self.pid = pid
        self.end: int | None = None
        with suppress(OSError):
            self.end = os.pidfd_open(pid)
        self.is_gone = self.is_stopped = self.is_still = False
        self._code: int | None = None  # exit status in the encoding of waitpid
        self._started = ""
        self._cpu = 0
        self.look()

    def look(self) -> None:
        """Update the attributes. The exit code is available until the parent reaps the process, and with Linux 6.15 also later."""
        if self.is_gone:
            return
        fields = _fields(f"/proc/{self.pid}/stat")
        started = fields[_STARTED] if fields else ""
        self._started = self._started or started
        if not fields or started != self._started or fields[_STATE] in "ZX":
            self.is_gone, self.is_stopped, self.is_still = True, False, False
            is_there = fields and started == self._started
            self._code = int(fields[_EXIT_CODE]) if is_there else _kept_code(self.end)
            return
        self.is_stopped = fields[_STATE] == "T"

    def look_for_work(self) -> None:
        """Update ``is_still``: whether the process was idle since the last call. Call this about every second."""
        fields = _fields(f"/proc/{self.pid}/stat")
        if fields:
            cpu = sum(map(int, fields[_CPU]))
            self.is_still = fields[_STATE] == "S" and cpu - self._cpu <= 1 and not self._has_children()
            self._cpu = cpu

    def _has_children(self) -> bool:
        for path in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with suppress(OSError):
                if any(int(child) != os.getpid() for child in path.read_text().split()):
                    return True
        return False

    def was_asked(self) -> bool:
        """Return whether a signal that asks a process to end (SIGTERM, SIGINT or SIGHUP) ended it."""
        return self._code is not None and self._code & 0x7F in _ASKING

    def how_it_ended(self, crash: str = "") -> str:
        """Return a clause that says how the process ended. ``crash`` is the crash report that the process itself wrote, or empty."""
        if self._code is None:
            if crash:
                return crash
            return "ended without a message: it was killed (SIGKILL, by hand or because memory ran out), or called os._exit"
        number = self._code & 0x7F
        if not number:
            return f"ended with exit code {self._code >> 8} before the run was done"
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"was killed by {name}" + (", by hand or because memory ran out" if number == signal.SIGKILL else "")


def _kept_code(end: int | None) -> int | None:
    """Return the exit code that the kernel keeps for a pidfd, or None."""
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    try:
        fcntl.ioctl(end if end is not None else -1, _GET_INFO, info)
    except (OSError, ValueError):
        return None
    kept, code = _INFO.unpack(info)
    return code if kept & _INFO_EXIT else None


def _fields(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []
