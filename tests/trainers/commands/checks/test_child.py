import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hoptrain.trainers.commands.checks import child


def has_ended(pid):
    stat = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 10
    while (running := stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z") and time.monotonic() < deadline:
        time.sleep(0.02)
    return not running


def test_child_answers():
    assert child.ask_child("import json, os; print('loading'); print(json.dumps({'a': os.environ['MARK']}))", MARK="b") == {"a": "b"}


def test_child_fails():
    assert child.ask_child("import no_such_module_at_all") == {"error": "ModuleNotFoundError: No module named 'no_such_module_at_all'"}
    assert child.ask_child("import sys; sys.exit(3)") == {"error": "exit code 3"}


@pytest.mark.parametrize("code", ["", "print('no JSON')", "print(3)"])
def test_child_says_nothing(code):
    assert child.ask_child(code) == {"error": "ended without an answer"}


def test_child_crashes():
    assert child.ask_child("import os, signal; os.kill(os.getpid(), signal.SIGABRT)") == {"error": "crashed with SIGABRT"}


def test_child_hangs(monkeypatch):
    monkeypatch.setattr(child, "LOAD_SECONDS", 0.2)
    assert child.ask_child("import signal; signal.pause()") == {"error": "no answer within 0.2 s"}


@pytest.mark.parametrize("grace", [0, 0.5])
def test_a_child_that_hangs_takes_along_what_it_started(tmp_path, grace):
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {note}.new; mv {note}.new {note}; trap '' INT; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        child.run_within(2, ["sh", "-c", script], grace=grace)
    assert has_ended(note.read_text().strip())


def test_what_a_command_wrote():
    assert child.run_within(60, ["sh", "-c", "echo out; exit 5"], stdout=subprocess.PIPE, text=True) == (5, "out\n", None)


def test_a_command_with_some_grace_can_end_what_it_started():
    """A command that runs out of time can end its own children during ``grace`` seconds.

    The signal that ends it does not reach their process groups, as with ``hoptrain doctor``.
    """
    code = """
import subprocess, sys
from hoptrain.trainers.commands.checks.child import run_within
print('inside', flush=True)
run_within(600, ["sh", "-c", "echo $$; exec sleep 600"])
"""
    with tempfile.TemporaryFile("w+") as output:
        with pytest.raises(subprocess.TimeoutExpired):
            child.run_within(5, [sys.executable, "-c", code], grace=30, stdout=output, stderr=subprocess.DEVNULL)
        output.seek(0)
        inside, pid = output.read().split()
    assert inside == "inside"
    assert has_ended(pid)
