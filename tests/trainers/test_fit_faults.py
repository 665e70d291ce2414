"""What ends or disturbs ``hoptrain fit`` from outside has one outcome within seconds, and leaves no process behind."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
TESTS = Path(__file__).parents[1]
SHORT = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu", "--data.num_workers=1")

START_S = 200  # a busy machine takes a minute to start two ranks
pytestmark = pytest.mark.timeout(2 * START_S + 50)


def start(folder, *arguments, launcher=("-m", "hoptrain.trainers.cli")):
    """``hoptrain fit`` in a session of its own, as a terminal would start it."""
    return subprocess.Popen(
        [sys.executable, *launcher, "fit", "--config", QUICKSTART, *SHORT, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def wait_for(path, run, seconds=START_S):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline, f"{path} has not appeared"
        time.sleep(0.1)


def left_of(run):
    """Processes of the run's session, and those of the sampler that it started."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            session = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(session[3]) == run.pid and session[0] not in "ZX":
            found.append(folder.name)
    return found


def none_left(run, seconds=5):
    """Whether all of them are gone, or within seconds: a process closes its output, by which its end is seen here, before it ends."""
    deadline = time.monotonic() + seconds
    while left_of(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left_of(run)


def end_all(run):
    for pid in left_of(run):
        os.kill(int(pid), signal.SIGKILL)
    run.communicate()


@pytest.mark.parametrize(
    ("number", "ranks", "code", "line"),
    [
        (signal.SIGINT, 2, 130, "hoptrain: interrupted"),
        (signal.SIGTERM, 1, 143, "hoptrain: terminated (SIGTERM)"),
    ],
)
def test_a_run_that_is_asked_to_end(tmp_path, number, ranks, code, line):
    """A Ctrl-C in the terminal goes to all ranks, and to no worker."""
    run = start(tmp_path, "--trainer.max_epochs=5000", f"--trainer.devices={ranks}")
    try:
        wait_for(tmp_path / "runs/version_0/checkpoints/last.ckpt", run)
        os.killpg(run.pid, number)
        _, errors = run.communicate(timeout=20)
        assert run.returncode == code, errors
        assert errors.splitlines().count(line) == 1
        assert "Traceback" not in errors
        assert none_left(run)
    finally:
        end_all(run)


def test_an_exception_in_one_rank_s_worker_is_told_by_every_rank(tmp_path):
    """Of rank 0, with which the ranks' common store ends. It has the first five batches."""
    sampler = ("--data.sampler=reference.samplers.Failing", "--data.sampler.fanouts=[5,5]", "--data.sampler.batch=3")
    run = start(tmp_path, "--trainer.devices=2", *sampler)
    try:
        _, errors = run.communicate(timeout=START_S)
        assert run.returncode != 0
        assert none_left(run)
        assert "hoptrain: rank 0 fails, its error follows" in errors
        assert "hoptrain: rank 1 ends, because rank 0 failed: WorkerError: worker 0 failed at batch 3:\nTraceback" in errors
        assert errors.count("RuntimeError: this sampler fails at batch 3") == 2
    finally:
        end_all(run)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def column(folder, name):
    """A column of all runs' metrics.csv, empty cells left out."""
    found = []
    for path in sorted(folder.glob("runs/version_*/metrics.csv")):
        with open(path) as file:
            found += [row[name] for row in csv.DictReader(file) if row.get(name)]
    return found


def test_a_killed_rank_is_started_again_and_the_metrics_are_those_of_an_undisturbed_run(tmp_path):
    """Rank 1 is killed in the middle of the third epoch; all go on from the end of the second."""
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
        assert errors.count("hoptrain: no last.ckpt is in runs yet: training starts anew\n") == 1
        assert ("Restored all states from the checkpoint" in errors) == (name == "killed")
        scores.append((out.strip().splitlines()[-1], *(column(folder, key) for key in ("train_loss", "val_loss", "val_acc", "test_acc"))))
    assert scores[0] == scores[1]
    assert scores[0][0].startswith("test accuracy 0.")
