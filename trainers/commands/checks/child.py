"""Asking a child process what may crash or hang whoever asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hoptrain.kernels.child_process import import_path, python

LOAD_SECONDS = 120
_LAST_SECONDS = 10
"""For which a killed child is waited for: one that the driver of a device holds may not end at all."""


_QUICKLY = "import gc, os, sys\ngc.disable()\n{}\nsys.stdout.flush()\nos._exit(0)"
"""A third of the time that torch takes goes into the collector's rounds and the interpreter's end."""


def ask_child(code: str, seconds: float | None = None, **environment: str) -> dict[str, Any]:
    """The dict that ``code`` prints as JSON in a child process; ``{"error": ...}`` if it fails, crashes or hangs.

    Args:
        code: Python's.
        seconds: how long to wait for the answer, by default ``LOAD_SECONDS``.
        environment: variables that it gets besides ours.
    """
    seconds = LOAD_SECONDS if seconds is None else seconds
    try:
        status, output, errors = run_within(
            seconds,
            python("-c", _QUICKLY.format(code)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | import_path() | environment,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {seconds:g} s"}
    if status < 0:
        return {"error": f"crashed with {signal.Signals(-status).name}"}
    if status > 0:
        return {"error": (errors.strip().splitlines() or [f"exit code {status}"])[-1]}
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])  # packages may print while they load
    return answer


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
        for number, wait in ((signal.SIGINT, grace), (signal.SIGKILL, _LAST_SECONDS)):
            with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(child.pid, number)
                child.communicate(timeout=wait)
        raise
    return child.returncode, output, errors
