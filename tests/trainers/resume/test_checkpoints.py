"""Checkpoint files: whole whatever happens while they are written, found by name in any folder, and never begun anew in silence."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hoptrain.engine import InputError
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.resume.checkpoints import CheckpointFiles, last_checkpoint

QUICKSTART = str(Path(__file__).parents[3] / "configs" / "quickstart.yaml")
QUIET = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--data.num_workers=0", "--trainer.accelerator=cpu")
START_S = 120

WRITER = """
import sys, torch
from hoptrain.trainers.resume.checkpoints import CheckpointFiles
number = 0
while True:
    CheckpointFiles().save_checkpoint({"state_dict": {"w": torch.full((1 << 20,), number)}, "pytorch-lightning_version": "2.6.0"}, sys.argv[1])
    number += 1
"""


def checkpoint(value, size=1000):
    return {"state_dict": {"w": torch.full((size,), value)}, "pytorch-lightning_version": "2.6.0"}


@contextmanager
def no_room(num_bytes):
    """A disk on which a file has so much room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fit(*options):
    return run(["fit", "--config", QUICKSTART, *QUIET, *map(str, options)])


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "last.ckpt"
    CheckpointFiles().save_checkpoint(checkpoint(1.0), path)
    with (
        no_room(50_000),
        pytest.raises(InputError, match=r"last\.ckpt cannot be written \(File too large\); the one before is whole: make room"),
    ):
        CheckpointFiles().save_checkpoint(checkpoint(2.0, 100_000), path)
    assert (CheckpointFiles().load_checkpoint(path)["state_dict"]["w"] == 1).all()
    assert os.listdir(tmp_path) == ["last.ckpt"]


@pytest.mark.long
def test_a_killed_writer_leaves_a_whole_checkpoint(tmp_path):
    path, seen = tmp_path / "last.ckpt", set()
    for delay in (0.0, 0.013, 0.029):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path])
        try:
            before = path.stat().st_mtime_ns if path.exists() else 0
            deadline = time.monotonic() + START_S
            while not path.exists() or path.stat().st_mtime_ns == before:
                assert writer.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(delay)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        values = CheckpointFiles().load_checkpoint(path)["state_dict"]["w"]
        assert len(values) == 1 << 20
        assert (values == values[0]).all()
        seen.add(path.stat().st_mtime_ns)
    assert len(seen) == 3


def test_a_run_on_a_full_disk_ends_with_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fit("--trainer.max_epochs=1")
    last = tmp_path / "runs/version_0/checkpoints/last.ckpt"
    before = last.read_bytes()
    capsys.readouterr()
    with no_room(len(before) // 2):
        code = main(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=2", "--ckpt_path=last"])
    error = capsys.readouterr().err
    assert code == 2, error
    (line,) = [line for line in error.splitlines() if line.startswith("hoptrain: ")]
    assert "cannot be written (File too large)" in line
    assert "Traceback" not in error
    assert last.read_bytes() == before


@pytest.mark.long
def test_the_last_checkpoint_is_found_in_a_folder_with_brackets(tmp_path, monkeypatch, capsys):
    """By the root of the runs, and by the folder of the checkpoints; what begins anew says so."""
    monkeypatch.chdir(tmp_path)
    for option, place in (("--trainer.default_root_dir", "a[1]/version_0/checkpoints"), ("--checkpoint.dirpath", "b[1]")):
        folder = f"{option}={place[:4]}"
        first = fit(folder, "--trainer.max_epochs=1", "--ckpt_path=last")
        assert (
            f"hoptrain: no last.ckpt is in {first.config.fit.checkpoint.dirpath or 'a[1]'} yet: training starts anew\n"
            in capsys.readouterr().err
        )
        assert (tmp_path / place / "last.ckpt").is_file()
        assert first.trainer.fit_loop.epoch_progress.total.completed == 1
        second = fit(folder, "--trainer.max_epochs=2", "--ckpt_path=last")
        assert "anew" not in capsys.readouterr().err
        assert second.trainer.fit_loop.epoch_progress.total.completed == 2
        assert second.trainer.global_step == 2 * first.trainer.global_step
        assert second.config.fit.ckpt_path.endswith(f"{place}/last.ckpt")


def test_the_newest_of_several(tmp_path):
    for number, name in enumerate(("b", "a")):
        folder = tmp_path / name / "checkpoints"
        folder.mkdir(parents=True)
        (folder / "last.ckpt").touch()
        os.utime(folder / "last.ckpt", (number, number))
    assert last_checkpoint(str(tmp_path), below="**/checkpoints") == f"{tmp_path}/a/checkpoints/last.ckpt"
    assert last_checkpoint(str(tmp_path)) is None


def test_weights_that_nothing_was_learnt_by_have_to_be_asked_for(tmp_path, monkeypatch, capsys):
    """``test_wrong_calls.py`` has what is said without."""
    monkeypatch.chdir(tmp_path)
    for command, words in (("validate", "val_acc"), ("test", "test_acc"), ("predict", "predictions.npy")):
        assert main([command, "--config", QUICKSTART, *QUIET, "--untrained"]) == 0
        assert words in capsys.readouterr().out


def test_a_run_of_no_epochs_says_what_its_score_is_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=0"]) == 0
    told = capsys.readouterr()
    assert "no step was trained: the score is of the weights that the model began with" in told.err
    assert "test accuracy 0." in told.out


@pytest.mark.long
def test_last_is_the_last_one_though_the_score_was_better_before(tmp_path, monkeypatch):
    """Lightning's would be that of the best epoch, and training would go on from there."""
    monkeypatch.chdir(tmp_path)
    arguments = ("--checkpoint.monitor=train_loss", "--checkpoint.mode=max", "--checkpoint.save_on_train_epoch_end=true")  # the loss falls
    run(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=3", *arguments])
    best, last = sorted(tmp_path.glob("runs/*/checkpoints/*.ckpt"))
    assert (best.name[:8], last.name) == ("epoch=0-", "last.ckpt")
    assert torch.load(last, weights_only=True)["global_step"] == 27
