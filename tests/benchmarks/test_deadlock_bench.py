"""``hoptrain bench deadlock`` detects and reports hangs; the tested cases are short and always hang."""

import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cases.mistakes import refused

from hoptrain.benchmarks import deadlock
from hoptrain.benchmarks.common import trial
from hoptrain.benchmarks.common.trial import Trial, run_trial
from hoptrain.benchmarks.deadlock import Case, outcome
from hoptrain.benchmarks.deadlocks import cases as deadlock_cases
from hoptrain.benchmarks.deadlocks import ranks as deadlock_ranks
from hoptrain.benchmarks.deadlocks.loaders import make_dataset, open_loader
from hoptrain.trainers.cli import main


def program(text, tmp_path, limit):
    return run_trial([sys.executable, "-c", textwrap.dedent(text)], limit, tmp_path / "log")


def bench(out, *options):
    assert main(["bench", "deadlock", "--quick", "--out", str(out), *options]) == 0
    content = json.loads((out / "results.json").read_text())
    return content["records"], content["summary"]


def test_torch_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "IDLE_S", 2.0)
    monkeypatch.setattr(trial, "LEAVE_S", 0.5)
    monkeypatch.setattr(deadlock, "QUICK_S", 3.0)
    [row], summary = bench(tmp_path, "--cases", "stop", "--systems", "torch")
    assert (row["case"], row["system"], row["limit_s"], row["outcome"]) == ("stop", "torch", 3.0, "hung")
    assert "trainer: " in row["waits"]
    assert "other: stopped" in row["waits"]
    assert "state T" in (tmp_path / "cases" / "stop-torch.stacks").read_text()
    assert (summary["cases"], summary["peer_hangs"], summary["hoptrain_hangs"]) == (1, 1, 0)


def test_hoptrain_does_not(tmp_path):
    [row], summary = bench(tmp_path, "--cases", "kill", "--systems", "hoptrain")
    assert (row["outcome"], row["batches"], row["orphans"], row["waits"]) == ("completed", "equal", 0, None)
    assert row["limit_s"] == deadlock.QUICK_S  # the same limit as for the other systems
    assert "was killed by SIGKILL: replaced" in (tmp_path / "cases" / "kill-hoptrain.log").read_text()
    assert (summary["cases"], summary["hoptrain_hangs"], summary["hoptrain_different"]) == (1, 0, 0)


def test_a_program_that_ends(tmp_path):
    found = program("import sys; print('begin'); print('words'); sys.exit(3)", tmp_path, 60)
    assert (found.ended, found.code, found.where, found.orphans) == (True, 3, "", 0)
    assert found.text == "begin\nwords\n"


def test_a_program_that_leaves_a_process_and_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "LEAVE_S", 0.5)
    file = Path("/dev/shm") / f"hoptrain-test-{os.getpid()}"
    found = program(
        f"""
        import os, subprocess, sys
        print("begin", flush=True)
        open({str(file)!r}, "w").close()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print(child.pid)
        """,
        tmp_path,
        60,
    )
    file.unlink()
    assert (found.ended, found.code, found.orphans) == (True, 0, 1)
    assert found.shm_files >= 1
    assert trial.state_of(Path("/proc", found.text.split()[1], "stat")) in "ZX"


def test_a_program_that_waits_is_given_up_with_its_stack(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "IDLE_S", 1.0)
    monkeypatch.setattr(trial, "LEAVE_S", 0.5)
    found = program(
        """
        import faulthandler, os, signal, time
        faulthandler.register(signal.SIGUSR1, all_threads=False)
        def wait_for_ever():
            time.sleep(600)
        print("begin", flush=True)
        os.fork()
        wait_for_ever()
        """,
        tmp_path,
        2,
    )
    assert (found.ended, found.code, found.orphans) == (False, None, 1)
    assert found.seconds < 30
    assert "trainer: wait_for_ever" in found.where
    assert (tmp_path / "log.stacks").read_text().count("in wait_for_ever") == 2


def test_a_program_that_only_looks_around_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "IDLE_S", 1.0)
    looks = itertools.cycle([True] + [False] * 4)  # as ranks look that wait in a collective which one of them never joins
    monkeypatch.setattr(trial, "is_busy", lambda mark: next(looks))
    found = program("import time; print('begin', flush=True); time.sleep(600)", tmp_path, 1)
    assert not found.ended
    assert found.seconds < 30


def test_a_program_that_computes_is_given_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SLOW", 1e3)
    monkeypatch.setattr(trial, "IDLE_S", 5.0)
    monkeypatch.setattr(trial, "cpu_seconds", lambda found, **_: 0.0)  # as if other programs used all cores
    found = program(
        "import time; print('begin', flush=True); t = time.process_time()\nwhile time.process_time() - t < 1: pass", tmp_path, 0.5
    )
    assert (found.ended, found.code) == (True, 0)


def test_processor_time_before_the_beginning_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SLOW", 1e3)
    monkeypatch.setattr(trial, "IDLE_S", 5.0)
    found = program(
        """
        import time
        def compute(seconds):
            begin = time.process_time()
            while time.process_time() - begin < seconds:
                pass
        compute(1)
        print("begin", flush=True)
        begin = time.monotonic()
        while time.monotonic() - begin < 1.2:
            compute(0.01)
            time.sleep(0.04)
        """,
        tmp_path,
        0.6,
    )
    assert (found.ended, found.code) == (True, 0)


@pytest.mark.parametrize(
    ("ended", "code", "text", "expected"),
    [
        (True, 0, "begin\ndone\n", "completed"),
        (True, 0, "begin\n", "error"),
        (True, 1, "begin\nraised ValueError: the disk is full\n", "clear error"),
        (True, 1, "begin\nraised ValueError: something\n", "error"),
        (True, -9, "begin\ndone\n", "error"),
        (False, None, "begin\nraised ValueError: the disk is full\n", "error, then hung"),
        (False, None, "begin\nthe disk is full\n", "hung"),
        (False, None, "begin\ndone\n", "hung"),
        (True, 1, "raised InputError: not installed\n", "skipped (not installed)"),
    ],
)
def test_outcomes(ended, code, text, expected):
    found = Trial(ended=ended, seconds=1.0, code=code, text=text, where="", orphans=0, shm_files=0)
    assert outcome(Case(name="x", what="x", cause="disk is full"), found) == expected


def test_every_case_has_its_function():
    assert [case.name for case in deadlock.CASES if case.name not in deadlock_cases.CASES and case.name not in deadlock_ranks.CASES] == []
    assert len(deadlock.CASES) == len(deadlock_cases.CASES) + len(deadlock_ranks.CASES)
    assert all(system.split(", ")[0] in deadlock.ALL for case in deadlock.CASES for system in (*case.systems, *case.quick))


def test_options_of_hoptrains_queue(tmp_path):
    make_dataset(tmp_path / "data")
    with refused("absent", "buffer_dir hold queue files", "folder exists written"):
        open_loader(f"hoptrain, buffer_dir={tmp_path / 'absent'}", tmp_path / "data")


def test_no_namespace_no_case(tmp_path, monkeypatch):
    def refuse(command, **options):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(deadlock.subprocess, "run", refuse)
    case = Case(name="full-later", what="full", full_shm=True)
    assert deadlock.tried(case, "torch", tmp_path, 1.0, tmp_path)["outcome"].startswith("skipped (no private mount namespace")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "0"], "--limit is 0: it must be above 0"),
        (["--cases", "event", "--systems", "hoptrain"], "no case is left to run"),
        (["--cases", "nothing"], "'nothing' is unknown: it must be one of race, "),
    ],
)
def test_mistakes(tmp_path, capsys, options, message):
    assert main(["bench", "deadlock", "--out", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
