"""Run a program that may hang, up to a time limit, and find out how it ended, where it waited, and what it left behind.

All its processes are recognised by an environment variable, even if they have moved to another session or process group.
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
"""Line that the program prints when it is ready. The time limit starts then."""
DONE = "done"
"""Line that the program prints when it has completed."""
RAISED = "raised "
"""Prefix of the line that the program prints when an exception has reached its top level."""
_START_S = 240.0
LEAVE_S = 6.0  # seconds that processes may outlive the first one before they count as orphans
_MARK = "HOPTRAIN_TRIAL"
_TICK_S = 0.1
IDLE_S = 8.0  # longer than any wait in the cases: a program that was idle for this time is considered hung
_BUSY = 0.25  # a program counts as active if it computes in this fraction of the checks; waiting collectives poll now and then
SLOW = 10.0  # factor by which a program may exceed its limit if it computes but gets little CPU time


def say(line: str) -> None:
    """Print a line for the program that watches this program. The line is written at once, since other processes print to the same file."""
    os.write(sys.stdout.fileno(), f"\n{line}\n".encode())


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The outcome of a program that ran with a time limit.

    Attributes:
        ended: whether it ended by itself within the limit.
        seconds: time from ``BEGIN`` to its end, or to the limit.
        code: exit code, negative for a signal; None if it did not end.
        text: output of all its processes.
        where: functions in which its processes waited, if it did not end.
        orphans: number of processes that outlived the first one by ``LEAVE_S`` seconds.
        shm_files: number of files that it left in /dev/shm.
    """

    ended: bool
    seconds: float
    code: int | None
    text: str
    where: str
    orphans: int
    shm_files: int


def run_trial(command: Sequence[str], limit: float, log: Path) -> Trial:
    """Run ``command`` up to the time limit, kill all processes that it leaves behind, and return the outcome.

    Args:
        command: program and arguments.
        limit: seconds from ``BEGIN``. A program that still computes then may use up to this amount of CPU time from ``BEGIN`` on.
        log: file for its output. If it does not end, its stacks are written to a file of the same name with the suffix ``.stacks``.
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
        # read before the first process is killed, since other processes would print messages about its death
        text = log.read_text(errors="replace")
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
    """Wait until the process ends or hangs, and return the seconds since it printed ``BEGIN``.

    A program that is only slow, on a busy machine, does not count as hung. After the limit the wait ends once the program has been idle for ``IDLE_S``,
    has used ``limit`` seconds of CPU time since ``BEGIN``, or has taken ``SLOW`` times the limit.
    """
    started = begin = time.monotonic()
    used_before = 0.0
    is_ready = False
    busy: deque[bool] = deque(maxlen=round(IDLE_S / _TICK_S))
    while process.poll() is None:
        time.sleep(_TICK_S)
        now = time.monotonic()
        if not is_ready:
            begin = now
            is_ready = re.search(f"^{BEGIN}$", log.read_text(errors="replace"), re.MULTILINE) is not None
            if is_ready:
                used_before = cpu_seconds(_marked(mark), ended_children=True)
            if now - started > _START_S:
                break
        elif now - begin > limit - IDLE_S:
            busy.append(is_busy(mark))
            is_idle = len(busy) == busy.maxlen and sum(busy) < _BUSY * len(busy)
            if now - begin <= limit:
                continue
            used = cpu_seconds(_marked(mark), ended_children=True) - used_before
            if is_idle or used > limit or now - begin > SLOW * limit:
                break
    return time.monotonic() - begin


def is_busy(mark: str) -> bool:
    """Return whether one of the program's processes, recognised by ``mark``, is running, ready to run, or in a wait that signals cannot interrupt."""
    return any(state_of(path) in "RD" for process in _marked(mark) for path in Path(f"/proc/{process.pid}/task").glob("*/stat"))


def _wait_for_orphans(mark: str) -> int:
    deadline = time.monotonic() + LEAVE_S
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    return len(found)


def _marked(mark: str) -> list[psutil.Process]:
    """Return the living processes with the environment variable, by ascending id, so that those started first come first."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # the process has ended, or belongs to another user
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _kill_all(mark: str) -> None:
    while found := _marked(mark):  # repeated, since a process may have started others before it was killed
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_TICK_S)


def state_of(path: Path) -> str:
    """Return the state letter from a ``stat`` file of /proc, or X if the process no longer exists."""
    try:
        return path.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _stacks(first: int, processes: Sequence[psutil.Process], log: Path) -> str:
    """Write the stack of every process to the ``.stacks`` file. Returns the innermost calls of the first process and of the others."""
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
    """Let the process print its own stack, if it has registered faulthandler for SIGUSR1, and return it."""
    size = log.stat().st_size
    catches = int(re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[0], 16)
    if not catches >> (signal.SIGUSR1 - 1) & 1:
        return ""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(0.5)
    return log.read_bytes()[size:].decode(errors="replace")


def _innermost(stack: str) -> str:
    """Return the calls that show where a process is: the innermost one, and the innermost one in a loader or a trainer."""
    frames = re.findall(r'File "(\S+)", line \d+ in (\S+)', stack)
    if not frames:
        return "no Python frame"
    known = [f"{function} ({file})" for file, function in frames if re.search(r"torch|dgl|hoptrain|lightning|popen_fork", file)]
    inner = f"{frames[0][1]} ({os.path.basename(frames[0][0])})"
    return " in ".join(dict.fromkeys([inner, *known[:1]]))
