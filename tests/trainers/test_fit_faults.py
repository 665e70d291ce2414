"""External signals and faults during ``hoptrain fit`` have one outcome within seconds, and leave no process behind.

``HOPTRAIN_FAULTS=1`` tests each fault in each rank under each launcher, and a rank that is restarted (``make test-faults``).
"""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks.on_machines import EACH_FAULT, QUICKSTART, SHORT, START_S, free_port, processes_in, send

TESTS = Path(__file__).parents[1]
ON_EXCEPTION = ("--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath=end")
pytestmark = pytest.mark.timeout(2 * START_S + 50)


def start(folder, *arguments, launcher=("-m", "hoptrain.trainers.cli")):
    """Start ``hoptrain fit`` in a new session, as a terminal would."""
    run = subprocess.Popen(
        [sys.executable, *launcher, "fit", "--config", QUICKSTART, *SHORT, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    run.folder = str(folder)
    return run


def wait_for(path, run, seconds=START_S):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline, f"{path} has not appeared"
        time.sleep(0.1)


def none_left(run, seconds=5):
    """Return whether all processes end within seconds; a process closes its output shortly before it ends."""
    deadline = time.monotonic() + seconds
    while processes_in(run.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_in(run.folder)


def end_all(run):
    send(processes_in(run.folder), signal.SIGKILL)
    run.communicate()


@pytest.mark.parametrize(
    ("number", "options", "code", "line"),
    [
        (signal.SIGINT, (), 130, "hoptrain: interrupted"),
        (signal.SIGTERM, ON_EXCEPTION, 143, "hoptrain: terminated (SIGTERM)"),
    ],
)
def test_a_run_that_is_asked_to_end(tmp_path, number, options, code, line):
    """A run ends after Ctrl-C or SIGTERM with one line and its exit code, and leaves no process.

    Ctrl-C in a terminal reaches all ranks, but no worker.
    """
    run = start(tmp_path, "--trainer.max_epochs=5000", "--trainer.devices=2", *options)
    try:
        wait_for(tmp_path / "runs/version_0/checkpoints/last.ckpt", run)
        os.killpg(run.pid, number)
        _, errors = run.communicate(timeout=20)
        assert run.returncode == code, errors
        assert errors.splitlines().count(line) == 1
        assert errors.count("hoptrain: to resume, run the same command ") == 1
        assert "Traceback" not in errors
        assert none_left(run)
        assert (tmp_path / "end" / "on_exception.ckpt").exists() == bool(options)
    finally:
        end_all(run)


@pytest.mark.parametrize(("ranks", "batch"), [(1, 3), (2, 5)], ids=["its own", "another rank's"])
def test_a_run_that_waits_for_a_batch_is_asked_to_end(tmp_path, ranks, batch):
    """A run that waits for a batch of a hanging sampler ends at SIGTERM.

    With two ranks, the other rank waits in a collective.
    """
    done = tmp_path / "hangs"
    sampler = ("--data.sampler=reference.samplers.Hanging", "--data.sampler.fanouts=[5,5]", f"--data.sampler.done={done}")
    run = start(tmp_path, *sampler, f"--data.sampler.batch={batch}", f"--trainer.devices={ranks}", *ON_EXCEPTION)
    try:
        wait_for(done, run)
        time.sleep(2)  # the trainer uses the earlier batches, and waits
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=20)
        assert run.returncode == 143, errors
        assert errors.splitlines()[-1] == "hoptrain: terminated (SIGTERM)"
        assert none_left(run)
        assert ranks > 1 or (tmp_path / "end" / "on_exception.ckpt").exists()
    finally:
        end_all(run)


def test_an_exception_in_a_worker_is_reported_by_its_rank_and_its_cause_by_every_rank(tmp_path):
    """If a worker of rank 0 fails, rank 0 prints the traceback, and each rank prints one line with the cause."""
    sampler = ("--data.sampler=reference.samplers.Failing", "--data.sampler.fanouts=[5,5]", "--data.sampler.batch=3")
    run = start(tmp_path, "--trainer.devices=2", *sampler)
    try:
        _, errors = run.communicate(timeout=START_S)
        assert run.returncode != 0
        assert none_left(run)
        assert "hoptrain: worker 0 failed at batch 3:\nTraceback" in errors
        cause = "rank 0 failed: WorkerError: worker 0 failed at batch 3: ... RuntimeError: this sampler fails at batch 3 (at "
        assert f"hoptrain: rank 1 ends, because {cause}" in errors
        assert cause in errors.splitlines()[-1]  # the message of either rank
        assert errors.count("Traceback") == 1
    finally:
        end_all(run)


KILLED = "was killed by SIGKILL, by hand or because memory ran out"
RAISED = "failed: RuntimeError: this rank fails (at "
EXITED = "ended with exit code 3 before the run was done"
CAUSES = {
    "constructor raise": RAISED,
    "constructor exit": EXITED,
    "constructor sleep": "has not arrived: it was idle for 12 s while another rank waits for it (last seen at ",
    "early kill": KILLED,
    "step kill": KILLED,
    "step crash": "was killed by SIGSEGV at ",
    "step stop": "was stopped (SIGSTOP) and not continued for 10 s (last seen at epoch ",
    "step exit": EXITED,
    "step leave": "ended by sys.exit(3) before the run was done (at ",
    "step raise": RAISED,
    "step end": "failed: RuntimeError: ",
}
LIGHTNING, TORCHRUN = "lightning", "torchrun"
EVERY_FAULT = [(launcher, victim, fault) for launcher in (LIGHTNING, TORCHRUN) for victim in (0, 1) for fault in CAUSES]
SOME_FAULTS = [(LIGHTNING, 1, "step raise"), (TORCHRUN, 0, "step crash")]
"""One fault under each launcher. Each way in which a rank fails has a test in ``watchdog/test_process.py``."""


@pytest.mark.parametrize(("launcher", "victim", "fault"), EVERY_FAULT if "HOPTRAIN_FAULTS" in os.environ else SOME_FAULTS)
def test_a_rank_that_fails_is_named(tmp_path, monkeypatch, launcher, victim, fault):
    """Each rank prints one line that names the failed rank, without the error of the lost connection."""
    if launcher == LIGHTNING and victim == 0 and fault.startswith("constructor"):
        pytest.skip("no other rank is launched before")
    monkeypatch.setenv("FAULT", f"{victim} {fault}")
    script = str(TESTS / "reference" / "failing_rank.py")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}")
    run = start(
        tmp_path, "--trainer.devices=2", "--trainer.max_epochs=500", launcher=(*torchrun, script) if launcher == TORCHRUN else (script,)
    )
    try:
        wait_for(tmp_path / "fault", run)
        _, errors = run.communicate(timeout=60)  # takes seconds, or more on a busy machine
        assert run.returncode != 0
        assert none_left(run)
        lines = [line for line in errors.splitlines() if line.startswith("hoptrain: ")]
        cause = f"rank {victim} {CAUSES[fault]}"
        assert sorted(line.partition(cause)[0] for line in lines) == ["hoptrain: ", f"hoptrain: rank {1 - victim} ends, because "], errors
        assert f"[rank{1 - victim}]:" not in errors
        if launcher == LIGHTNING:  # torchrun prints the last line
            assert errors.splitlines()[-1] in lines
            assert errors.count("Traceback") == fault.endswith(("raise", "end"))
    finally:
        end_all(run)


def column(folder, name):
    """Return a column of all runs' metrics.csv without empty cells."""
    found = []
    for path in sorted(folder.glob("runs/version_*/metrics.csv")):
        with open(path) as file:
            found += [row[name] for row in csv.DictReader(file) if row.get(name)]
    return found


@EACH_FAULT
def test_a_killed_rank_is_started_again_and_the_metrics_are_those_of_an_undisturbed_run(tmp_path):
    """If rank 1 is killed in the third epoch, all ranks resume from the second one's end, with the metrics of an undisturbed run."""
    options = ["--trainer.max_epochs=3", "--trainer.devices=2", "--ckpt_path=last", "--data.sampler=reference.samplers.KillingItsRank"]
    options += ["--data.sampler.fanouts=[10,10]", "--data.sampler.epoch=2", "--data.sampler.batch=7"]
    scores = []
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        done = folder / "done"
        if name == "undisturbed":
            done.touch()
        torchrun = ("--nproc-per-node=2", "--max-restarts=2", f"--master-port={free_port()}", "-m", "hoptrain.trainers.cli")
        run = start(folder, *options, f"--data.sampler.done={done}", launcher=("-m", "torch.distributed.run", *torchrun))
        try:
            out, errors = run.communicate(timeout=START_S)
        finally:
            end_all(run)
        assert run.returncode == 0, errors
        assert done.exists()
        assert errors.count("hoptrain: runs has no last.ckpt to resume from: a new run starts\n") == 1
        assert ("Restored all states from the checkpoint" in errors) == (name == "killed")
        scores.append((out.splitlines()[-2], *(column(folder, key) for key in ("train_loss", "val_loss", "val_acc", "test_acc"))))
    assert scores[0] == scores[1]
    assert scores[0][0].startswith("test accuracy 0.")
