"""What can be seen of another process of this user without its help: whether it runs, stands or is stopped, and how it ended."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path

_STATE, _CPU, _STARTED, _EXIT_CODE = 0, slice(11, 13), 19, 49  # fields of /proc/PID/stat behind the name
_GET_INFO, _INFO_EXIT = 0xC040FF0B, 8  # ioctl of a pidfd, and the wish for the exit code, since Linux 6.15: Python has no names for them
_INFO = struct.Struct("Q52xi")
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Sight:
    """One process.

    Attributes:
        is_gone: it has ended.
        is_stopped: it was stopped by a signal. A debugger's stop does not count: somebody is at work there.
        is_still: since the last look it neither ran, nor waited for a disk, nor had a child to wait for.
        end: a descriptor that becomes readable when it ends; None where the kernel has no such thing.
    """

    def __init__(self, pid: int) -> None:
        """Begin to look."""
        self.pid = pid
        self.end: int | None = None
        with suppress(OSError):
            self.end = os.pidfd_open(pid)
        self.is_gone = self.is_stopped = self.is_still = False
        self._code: int | None = None  # as waitpid's status
        self._started = ""
        self._cpu = 0
        self.look()

    def look(self) -> None:
        """Look once. How a process ended can be seen until its parent has asked for it, and from the newest kernels later as well."""
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
        """See whether it has worked since the last call; to be called every second or so."""
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
        """Whether it ended by a signal that asks to end."""
        return self._code is not None and self._code & 0x7F in _ASKING

    def how_it_ended(self, crash: str = "") -> str:
        """In words; ``crash`` is what it wrote about a crash."""
        if self._code is None:
            if crash:
                return crash
            return "ended without a word: it was killed (SIGKILL, by hand or since memory ran out), or left by os._exit"
        number = self._code & 0x7F
        if not number:
            return f"ended with exit code {self._code >> 8} before the run was done"
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"was killed by {name}" + (", by hand or since memory ran out" if number == signal.SIGKILL else "")


def _kept_code(end: int | None) -> int | None:
    """The exit code that the kernel keeps with a descriptor of the process."""
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
