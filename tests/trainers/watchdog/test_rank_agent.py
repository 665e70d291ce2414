"""A rank reports its own failure."""

import signal
import subprocess
import sys

import pytest

from hoptrain.trainers.watchdog.rank_agent import current, report, watched


class DistBackendError(RuntimeError):
    pass


class SIGTERMException(SystemExit):
    pass


def interrupted():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        try:
            raise SystemExit(1)
        except SystemExit as error:
            return error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RuntimeError("no"), "failed", "failed: RuntimeError: no"),
        (ValueError(), "failed", "failed: ValueError: "),
        (RuntimeError("first\nsecond"), "failed", "failed: RuntimeError: first"),
        (RuntimeError("worker 1 failed:\n stack\n ValueError: no"), "failed", "failed: RuntimeError: worker 1 failed: ... ValueError: no"),
        (ConnectionResetError("gone"), "lost", "failed: ConnectionResetError: gone"),
        (RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer"), "lost", None),
        (SystemExit(3), "failed", "ended by sys.exit(3) before the run was done"),
        (SystemExit("why"), "failed", "ended by sys.exit('why') before the run was done"),
        (SystemExit(), "left", "ended by sys.exit(0) before the run was done"),
        (SystemExit(143), "asked", "was asked to end"),
        (SIGTERMException(), "asked", "was asked to end"),
        (KeyboardInterrupt(), "asked", "was asked to end"),
        (interrupted(), "asked", "was asked to end"),
    ],
)
def test_an_exception_in_one_line(error, kind, text):
    found = report(error)
    assert found[0] == kind
    assert text is None or found[1].partition(" (at ")[0] == text
    assert "\n" not in found[1]


def test_where_an_exception_was_raised():
    with pytest.raises(ZeroDivisionError) as caught:
        report(1 / 0)
    assert report(caught.value)[1].startswith(f"failed: ZeroDivisionError: division by zero (at {__file__}, line ")


def test_a_process_alone_is_not_watched(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    with watched():
        assert current() is None


def test_a_crash_of_a_process_alone_is_reported(tmp_path):
    (tmp_path / "crash.py").write_text(
        "import os, signal\nfrom hoptrain.trainers.watchdog.rank_agent import watched\nwith watched():\n    os.kill(os.getpid(), signal.SIGBUS)\n"
    )
    done = subprocess.run([sys.executable, "crash.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr
    assert "crash.py" in done.stderr
