"""A program that may hang, run to its end or to a time limit: how it ended, where it waited, and what it left behind.

All its processes are known by a variable of their environment, whichever session or group they have moved to.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hoptrain.benchmarks.common.processes import cpu_seconds
from hoptrain.kernels.child_process import import_path

BEGIN = "begin"
"""The program prints this line when it is ready; its limit counts from there."""
DONE = "done"
"""The program prints this line when it has finished all that it wanted."""
RAISED = "raised "
"""The program prints a line that begins so when an exception has reached its top."""
_START_S = 240.0
LEAVE_S = 6.0  # how long processes may live on after the one that started them
_MARK = "HOPTRAIN_TRIAL"
_TICK_S = 0.1
IDLE_S = 8.0  # longer than any wait that the cases set: a program that did nothing for so long does nothing any more
_BUSY = 0.25  # share of the looks at which a program that does something computes; collectives that wait look around now and then
SLOW = 10.0  # how many times its limit a program may take that computes, but gets little of a core


def say(line: str) -> None:
    """Print a line for the one who watches, in one piece: other processes print to the same file."""
    os.write(sys.stdout.fileno(), f"\n{line}\n".encode())


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The outcome of a program.

    Attributes:
        ended: whether it ended by itself within the limit.
        seconds: from its readiness to its end, or to the limit.
        code: exit code, negative for a signal; None if it did not end.
        text: what all its processes printed.
        where: of a program that did not end: what its processes were waiting in.
        orphans: processes that outlived the first one by seconds.
        shm_files: names in /dev/shm that it left there.
    """

    ended: bool
    seconds: float
    code: int | None
    text: str
    where: str
    orphans: int
    shm_files: int


def run_trial(command: Sequence[str], limit: float, log: Path) -> Trial:
    """Run ``command``; whatever it has started is gone afterwards.

    Args:
        command: program and arguments.
        limit: seconds from ``BEGIN``, and of processor time for a program that still computes then.
        log: file for what it prints; the stacks of a program that did not end lie beside it, with the suffix ``.stacks``.
    """
    mark = uuid.uuid4().hex
    before = os.listdir("/dev/shm")
    environment = os.environ | import_path() | {"PYTHONUNBUFFERED": "1", _MARK: mark}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        seconds = _wait(process, mark, limit, log)
        code = process.poll()
        text = log.read_text(errors="replace")  # before others complain that the first one is gone
        where = "" if code is not None else _stacks(process.pid, _marked(mark), log)
        process.kill()
        process.wait()
        orphans = _wait_for_orphans(mark)
    finally:
        _kill_all(mark)
        process.wait()
    return Trial(
        ended=code is not None,
        seconds=seconds,
        code=code,
        text=text,
        where=where,
        orphans=orphans,
        shm_files=len(set(os.listdir("/dev/shm")).difference(before)),
    )


def _wait(process: subprocess.Popen[bytes], mark: str, limit: float, log: Path) -> float:
    """Until the end or the limit; returns the seconds since ``BEGIN``.

    On a busy machine a slow program is no hang: past the limit it is given up once it has done nothing for a while, or has used as much
    processor time as the limit is long.
    """
    started = begin = time.monotonic()
    is_ready = False
    busy: deque[bool] = deque(maxlen=round(IDLE_S / _TICK_S))
    while process.poll() is None:
        time.sleep(_TICK_S)
        now = time.monotonic()
        if not is_ready:
            begin = now
            is_ready = re.search(f"^{BEGIN}$", log.read_text(errors="replace"), re.MULTILINE) is not None
            if now - started > _START_S:
                break
        elif now - begin > limit - IDLE_S:
            busy.append(is_busy(mark))
            is_idle = len(busy) == busy.maxlen and sum(busy) < _BUSY * len(busy)
            if now - begin > limit and (is_idle or cpu_seconds(_marked(mark), ended_children=True) > limit or now - begin > SLOW * limit):
                break
    return time.monotonic() - begin


def is_busy(mark: str) -> bool:
    """Return whether one of the processes computes, or would if it got a core."""
    return any(state_of(path) in "RD" for process in _marked(mark) for path in Path(f"/proc/{process.pid}/task").glob("*/stat"))


def _wait_for_orphans(mark: str) -> int:
    deadline = time.monotonic() + LEAVE_S
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    return len(found)


def _marked(mark: str) -> list[psutil.Process]:
    """The living processes that have the variable, by their ids: those started first in front."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile, or is another user's
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _kill_all(mark: str) -> None:
    while found := _marked(mark):  # again, for those that were started meanwhile
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_TICK_S)


def state_of(path: Path) -> str:
    """One letter; X of a process that is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _stacks(first: int, processes: Sequence[psutil.Process], log: Path) -> str:
    """Write the stack of every process to the file beside ``log``; returns the innermost calls of the first process and of the others."""
    texts, calls = [], []
    for pid in (process.pid for process in processes):
        with suppress(OSError):
            state, wait = state_of(Path(f"/proc/{pid}/stat")), Path(f"/proc/{pid}/wchan").read_text()
            stack = "" if state == "T" else _stack(pid, log)
            texts.append(f"process {pid}, state {state}, waits in {wait}\n{stack or 'no stack'}\n")
            call = "stopped" if state == "T" else _innermost(stack)
            calls.append(f"{'trainer' if pid == first else 'other'}: {call}")
    log.with_suffix(".stacks").write_text("\n".join(texts))
    return "; ".join(dict.fromkeys(calls))


def _stack(pid: int, log: Path) -> str:
    """Let the process print its stacks itself, if it has registered faulthandler for SIGUSR1."""
    size = log.stat().st_size
    catches = int(re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[0], 16)
    if not catches >> (signal.SIGUSR1 - 1) & 1:
        return ""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(0.5)
    return log.read_bytes()[size:].decode(errors="replace")


def _innermost(stack: str) -> str:
    """The calls that tell where a process is: the innermost, and the innermost of a loader or a trainer."""
    frames = re.findall(r'File "(\S+)", line \d+ in (\S+)', stack)
    if not frames:
        return "no Python frame"
    known = [f"{function} ({file})" for file, function in frames if re.search(r"torch|dgl|hoptrain|lightning|popen_fork", file)]
    inner = f"{frames[0][1]} ({os.path.basename(frames[0][0])})"
    return " in ".join(dict.fromkeys([inner, *known[:1]]))
