"""A rank ends with torchrun, even if torchrun is killed. Small processes stand in for torchrun and the rank."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cases.mistakes import refused
from ranks.on_machines import EACH_FAULT, free_port

from hoptrain.trainers.watchdog import launcher

RANK = "import time; from hoptrain.trainers.watchdog.launcher import end_with_launcher; end_with_launcher(); print('ready', flush=True); time.sleep(100)"
LAUNCHER = """
import os, subprocess, sys
mark = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
subprocess.Popen(sys.argv[2:], env=os.environ | mark).wait()
"""
WRAPPED = ("sh", "-c", '"$0" "$@"; true')  # the shell keeps running, since another command follows


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)


@pytest.mark.parametrize("between", [(), WRAPPED])
def test_a_rank_ends_when_torchrun_is_killed(between):
    with socket.create_server(("127.0.0.1", 0)) as store:
        command = [sys.executable, "-c", LAUNCHER, str(store.getsockname()[1]), *between, sys.executable, "-c", RANK]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            process.kill()
            assert (
                process.stderr.read() == "hoptrain: this rank ends, because torchrun has ended\n"
            )  # up to the end, when no process holds the pipe open any more
        finally:
            process.wait()
            process.stdout.close()
            process.stderr.close()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_rank_that_starts_after_torchrun_has_ended(monkeypatch):
    port = free_port()
    for name, value in {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    with refused(f"127.0.0.1:{port}", "torchrun ended store listen", error=RuntimeError):
        launcher.end_with_launcher()


def test_other_launchers_are_not_looked_at():
    before = threading.enumerate()
    launcher.end_with_launcher()
    assert threading.enumerate() == before


TRAIN = "-m hoptrain.trainers.cli fit --config quickstart --trainer.accelerator cpu --trainer.max_epochs 1000 --data.num_workers 1 --trainer.logger false"


def running(mark):
    """Return the ids of the processes whose environment contains the text ``mark``."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=EACH_FAULT), 2])
def test_ranks_watchdogs_and_workers_end_with_torchrun(tmp_path, ranks):
    mark = f"HOPTRAIN_TEST_MARK={tmp_path}"
    environment = os.environ | dict([mark.split("=", 1)]) | {"OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(ranks),
        *TRAIN.split(),
        "--trainer.devices",
        str(ranks),
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 90
        while "parameters, " not in (tmp_path / "log").read_text() or len(running(mark)) < 2 * ranks + 1:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 25
        while running(mark):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
    finally:
        for pid in running(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
