"""Run code that may crash or hang in a child process, and return its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from hoptrain.kernels.child_process import import_path, python

LOAD_SECONDS = 120
"""Default deadline for a child process."""
_LAST_SECONDS = 10
"""Seconds to wait for a killed child to end. A child that is blocked in a device driver may not end at all."""


_QUICKLY = "import gc, os, sys\ngc.disable()\n{}\nsys.stdout.flush()\nos._exit(0)"
"""Template of the child's program. It skips garbage collection and interpreter shutdown, which take a third of the time of a child that imports torch."""


class ChildProcess:
    """A child process that runs Python code and prints its answer.

    The child's output goes to temporary files, so that several children can run at once and none blocks on a full pipe.

    Args:
        code: Python code; the last line that it prints must be a dict as JSON.
        seconds: deadline, by default ``LOAD_SECONDS``.
        environment: environment variables in addition to those of this process.
    """

    def __init__(self, code: str, seconds: float | None = None, **environment: str) -> None:
        self._seconds = LOAD_SECONDS if seconds is None else seconds
        self._output, self._errors = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115 - answer() or end() closes them
        self._deadline = time.monotonic() + self._seconds
        self._child = subprocess.Popen(
            python("-c", _QUICKLY.format(code)),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            process_group=0,
            env=os.environ | import_path() | environment,
        )

    def answer(self) -> dict[str, Any]:
        """Wait for the child and return its dict, or ``{"error": ...}`` if it fails, crashes, hangs or prints no dict."""
        try:
            status = self._child.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            return {"error": f"no answer within {self._seconds:g} s"}
        output, errors = (self._read(file) for file in (self._output, self._errors))
        if status < 0:
            return {"error": f"crashed with {signal.Signals(-status).name}"}
        if status > 0:
            return {"error": (errors or [f"exit code {status}"])[-1]}
        with suppress(ValueError, IndexError):
            answer = json.loads(output[-1])  # only the last line: packages may print while they load
            if isinstance(answer, dict):
                return answer
        return {"error": "ended without an answer"}

    def _read(self, file: IO[str]) -> list[str]:
        with file:
            file.seek(0)
            return file.read().strip().splitlines()

    def end(self) -> None:
        """Kill the child and its process group."""
        with self._output, self._errors:
            _end(self._child)


def ask_child(code: str, seconds: float | None = None, **environment: str) -> dict[str, Any]:
    """Run code in a child process and return its answer. The arguments are those of ``ChildProcess``."""
    return ChildProcess(code, seconds, **environment).answer()


def _end(child: subprocess.Popen[Any], signals: Sequence[tuple[int, float]] = ((signal.SIGKILL, _LAST_SECONDS),)) -> None:
    """Send each of the (signal, seconds) pairs to the child's process group, and wait for the child for that time."""
    for number, wait in signals:
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.killpg(child.pid, number)
            child.communicate(timeout=wait)


def run_within(seconds: float, command: Sequence[str], *, grace: float = 0.0, **options: Any) -> tuple[int, Any, Any]:
    """Run a command and wait for it. If the deadline passes, or an exception ends the wait, kill the command's process group.

    Args:
        seconds: deadline of the command.
        command: program and arguments.
        grace: seconds between SIGINT and SIGKILL, in which the command can report its progress and end its own children.
        options: further arguments of ``subprocess.Popen``.

    Returns:
        Exit code, stdout and stderr. An output is None unless ``options`` redirect it to a pipe.

    Raises:
        subprocess.TimeoutExpired: the command did not end before the deadline.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **options)
    try:
        output, errors = child.communicate(timeout=seconds)
    except BaseException:
        _end(child, ((signal.SIGINT, grace), (signal.SIGKILL, _LAST_SECONDS)))
        raise
    return child.returncode, output, errors
