"""Asking a child process what may crash or hang whoever asks."""

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
_LAST_SECONDS = 10
"""For which a killed child is waited for: one that the driver of a device holds may not end at all."""


_QUICKLY = "import gc, os, sys\ngc.disable()\n{}\nsys.stdout.flush()\nos._exit(0)"
"""A third of the time that torch takes goes into the collector's rounds and the interpreter's end."""


class Asked:
    """A child process that runs Python code; it writes into files, so that several can be asked at once and none waits to be read.

    Args:
        code: What it runs; the last line that it prints is a dict as JSON.
        seconds: How long it may take, by default ``LOAD_SECONDS``.
        environment: Variables that it gets besides ours.
    """

    def __init__(self, code: str, seconds: float | None = None, **environment: str) -> None:
        self._seconds = LOAD_SECONDS if seconds is None else seconds
        self._output, self._errors = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115 - closed with the answer
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
        """Wait for the dict; ``{"error": ...}`` where the child fails, crashes, hangs or prints none."""
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
            answer = json.loads(output[-1])  # packages may print while they load
            if isinstance(answer, dict):
                return answer
        return {"error": "ended without an answer"}

    def _read(self, file: IO[str]) -> list[str]:
        with file:
            file.seek(0)
            return file.read().strip().splitlines()

    def end(self) -> None:
        """End the child and what it started."""
        with self._output, self._errors:
            _end(self._child)


def ask_child(code: str, seconds: float | None = None, **environment: str) -> dict[str, Any]:
    """The answer of a child process; see ``Asked``."""
    return Asked(code, seconds, **environment).answer()


def _end(child: subprocess.Popen[Any], signals: Sequence[tuple[int, float]] = ((signal.SIGKILL, _LAST_SECONDS),)) -> None:
    """Send its process group these signals, and wait for the child for so many seconds after each."""
    for number, wait in signals:
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.killpg(child.pid, number)
            child.communicate(timeout=wait)


def run_within(seconds: float, command: Sequence[str], *, grace: float = 0.0, **options: Any) -> tuple[int, Any, Any]:
    """Run a command and wait for it; whatever ends the waiting, nothing of its process group goes on.

    Args:
        seconds: its deadline.
        command: a program and its arguments.
        grace: seconds that it then has to end by itself, as upon a Ctrl-C: it can tell how far it came, and end groups that it started.
        options: those of ``subprocess.Popen``.

    Returns:
        Its exit code, and what it wrote to the pipes among ``options``, or None.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **options)
    try:
        output, errors = child.communicate(timeout=seconds)
    except BaseException:
        _end(child, ((signal.SIGINT, grace), (signal.SIGKILL, _LAST_SECONDS)))
        raise
    return child.returncode, output, errors
