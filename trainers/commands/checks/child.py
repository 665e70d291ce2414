"""Asking a child process what may crash or hang whoever asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

LOAD_SECONDS = 120


_QUICKLY = "import gc, os, sys\ngc.disable()\n{}\nsys.stdout.flush()\nos._exit(0)"
"""A third of the time that torch takes goes into the collector's rounds and the interpreter's end."""


def ask_child(code: str, **environment: str) -> dict[str, Any]:
    """The dict that ``code`` prints as JSON in a child process; ``{"error": ...}`` if it fails, crashes or hangs."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _QUICKLY.format(code)],
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS,
            env=os.environ | environment,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {LOAD_SECONDS} s"}
    if child.returncode < 0:
        return {"error": f"crashed with {signal.Signals(-child.returncode).name}"}
    if child.returncode > 0:
        return {"error": (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]}
    answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])  # packages may print while they load
    return answer
