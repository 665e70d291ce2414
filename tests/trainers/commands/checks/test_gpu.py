"""Scheduling of ``hoptrain doctor --gpu``: each check in a process, with a deadline, in order. test_gpu_checks.py tests the checks."""

import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from cuda_case import simulated

from hoptrain.trainers.cli import main
from hoptrain.trainers.commands import doctor
from hoptrain.trainers.commands.checks import gpu
from hoptrain.trainers.commands.checks.finding import Finding

FAKES = """
import os, signal, time
from pathlib import Path
from hoptrain.trainers.commands.checks.finding import CheckFailed, CheckSkipped

def fine(): return "it works"
def absent(): raise CheckSkipped("not in the simulator")
def broken(): raise CheckFailed("other numbers")
def refused(): raise RuntimeError("[700] an illegal\\n address")
def hangs(): signal.pause()
def crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def keeps(): return str((Path(os.environ["HOPTRAIN_NUMBA_ROOT"]) / "code").write_text("kept"))
def meets():
    folder = Path(os.environ["HOPTRAIN_NUMBA_ROOT"])
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) % 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    return "all are here"
def finds(): return (Path(os.environ["HOPTRAIN_NUMBA_ROOT"]) / "code").read_text()
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that makes a check of one of the ``FAKES``, which child processes can import."""
    (tmp_path / "gpu_fakes.py").write_text(FAKES)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda function, **options: gpu.Check(function, f"gpu_fakes:{function}", f"mend {function}", **options)


def test_each_end_of_a_check_has_its_line_and_the_next_one_follows(fake):
    checks = [fake("hangs", seconds=2), *map(fake, ("fine", "broken", "refused", "absent", "crashes", "fine"))]
    assert list(gpu.findings(checks)) == [
        Finding("hangs", "wrong", "no answer within 2 s", "mend hangs"),
        Finding("fine", "ok", "it works"),
        Finding("broken", "wrong", "other numbers", "mend broken"),
        Finding("refused", "wrong", "RuntimeError: [700] an illegal address", "mend refused"),
        Finding("absent", "note", "not in the simulator"),
        Finding("crashes", "wrong", "crashed with SIGSEGV", "mend crashes"),
        Finding("fine", "ok", "it works"),
    ]


def test_a_check_finds_the_machine_code_of_those_before(fake):
    checks = [replace(fake("keeps"), name="kernel"), fake("finds"), fake("finds")]
    assert [finding.found for finding in gpu.findings(checks)] == ["4", "kept", "kept"]


def test_some_checks_run_at_once_and_end_with_whoever_asks(fake):
    """Some checks run at the same time, and running checks end if the caller closes the iterator.

    Four checks wait until all four run; later five checks hang.
    """
    waits = [fake("meets") for _ in range(gpu.AT_ONCE)]
    assert [finding.found for finding in gpu.findings(waits)] == ["all are here"] * gpu.AT_ONCE
    asked = gpu.findings([fake("fine"), *(fake("hangs") for _ in range(5))])
    next(asked)
    before = time.monotonic()
    asked.close()
    assert time.monotonic() - before < 60  # not the deadline of a check, which is 120 s


def test_every_check_that_fails_is_named_with_its_remedy(fake):
    found = list(gpu.findings([replace(check, at="gpu_fakes:broken") for check in gpu.CHECKS]))
    assert [(finding.name, finding.remedy) for finding in found] == [(check.name, check.remedy) for check in gpu.CHECKS]
    assert all(finding.status == "wrong" and finding.remedy for finding in found)
    assert len({finding.name for finding in found}) == len(found)


def test_every_check_is_there():
    for check in gpu.CHECKS:
        module, function = check.at.split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_first_things_come_first():
    """Checks are listed after those that they rely on, and "sampling" is last."""
    names = [check.name for check in gpu.CHECKS]
    assert names[:3] == ["numba.cuda", "device", "kernel"]
    assert names.index("kernel") < names.index("kernel cache")
    assert names.index("torch") < names.index("torch's stream")
    assert names[-1] == "sampling"


@simulated
def test_in_the_simulator_what_it_offers_is_looked_at():
    found = {check.name: gpu.look(check.at) for check in gpu.CHECKS}
    assert [name for name, answer in found.items() if answer["status"] == "wrong"] == []
    assert {"kernel", "host memory", "sampling"} <= {name for name, answer in found.items() if answer["status"] == "ok"}
    notes = {name: answer["found"] for name, answer in found.items() if answer["status"] == "note"}
    assert "NUMBA_ENABLE_CUDASIM" in notes.pop("numba.cuda")
    assert set(notes.values()) == {"skipped: the CUDA simulator cannot check this"}


@pytest.mark.timeout(600)
def test_the_command_in_the_simulator(tmp_path):
    command = [sys.executable, "-m", "hoptrain.trainers.cli", "doctor", "--gpu", "--json"]
    child = subprocess.run(command, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, timeout=580)
    assert (child.returncode, child.stderr) == (0, "")
    report = json.loads(child.stdout)
    assert report["healthy"]
    assert [finding["name"] for finding in report["findings"]] == [check.name for check in gpu.CHECKS]


def test_without_a_device_one_line_says_why():
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "hoptrain.trainers.cli", "doctor", "--gpu"]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr.startswith("hoptrain: no CUDA device can be used: ")
    assert child.stderr.count("\n") == 1


def test_without_a_device_a_program_gets_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "reason_against", lambda: "no CUDA device can be used")
    monkeypatch.setattr(gpu, "findings", lambda: pytest.fail("there is nothing to check"))
    assert main(["doctor", "--gpu", "--json"]) == 1
    said = capsys.readouterr()
    (finding,) = json.loads(said.out)["findings"]
    assert "NVIDIA's driver" in finding.pop("remedy")
    assert finding == {"name": "GPU", "status": "wrong", "found": "no CUDA device can be used"}
    assert (json.loads(said.out)["healthy"], said.err) == (False, "")


@pytest.mark.parametrize(("status", "code", "end"), [("ok", 0, "Nothing is wrong."), ("wrong", 1, "Wrong: kernel.")])
def test_the_exit_code_is_that_of_the_findings(status, code, end, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "reason_against", lambda: None)
    monkeypatch.setattr(gpu, "findings", lambda: iter([Finding("device", "ok", "there"), Finding("kernel", status, "run", "mend it")]))
    assert main(["doctor", "--gpu"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "device", "there"]
    assert lines[-1] == end


def test_the_plain_doctor_asks_no_gpu(monkeypatch):
    def asked():
        raise AssertionError("a GPU was asked")

    monkeypatch.setattr(gpu, "reason_against", asked)
    monkeypatch.setattr(gpu, "findings", asked)
    monkeypatch.setattr(doctor, "CHECKS", (lambda: Finding("one", "ok", "fine"),))
    assert main(["doctor"]) == 0


@pytest.mark.parametrize(("at", "code", "line"), [("fine", 0, "ok kernel: it works\n"), ("broken", 1, "wrong kernel: other numbers\n")])
def test_one_check_in_this_process(fake, tmp_path, monkeypatch, capsys, at, code, line):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gpu, "CHECKS", (replace(fake(at), name="kernel"),))
    assert gpu.main("kernel") == code
    assert capsys.readouterr().out == line
