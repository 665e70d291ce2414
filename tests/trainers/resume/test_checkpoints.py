"""Checkpoints stay intact if a write is interrupted and are found by name in any folder; a missing one never starts a new run silently."""

import os
import resource
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from cases.mistakes import refused
from ranks.forked import Forked

from hoptrain.engine import InputError
from hoptrain.trainers import NodeClassifier
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.resume.checkpoints import BestAndLast, CheckpointFiles, last_checkpoint

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


@pytest.fixture
def writer_of(forkserver):
    """Return a function ``writer_of(path)`` that starts a process which rewrites a checkpoint forever, and returns its id."""
    writers = []

    def start(path):
        writers.append(Forked(WRITER, path))
        return writers[-1].pid

    yield start
    for writer in writers:
        writer.kill()
        writer.communicate()


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


def checkpoint(value, size=1000):
    return {"state_dict": {"w": torch.full((size,), value)}, "pytorch-lightning_version": "2.6.0"}


@contextmanager
def full_disk(num_bytes):
    """Pretend that the disk has space for a file of ``num_bytes`` only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fit(*options):
    return run(["fit", "--config", QUICKSTART, *QUIET, *map(str, options)])


def kept_by(cli):
    return next(callback for callback in cli.trainer.checkpoint_callbacks if isinstance(callback, BestAndLast))


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "last.ckpt"
    CheckpointFiles().save_checkpoint(checkpoint(1.0), path)
    with (
        full_disk(50_000),
        refused("last.ckpt", "written large previous intact", "space disk folder checkpoint.dirpath"),
    ):
        CheckpointFiles().save_checkpoint(checkpoint(2.0, 100_000), path)
    assert (CheckpointFiles().load_checkpoint(path)["state_dict"]["w"] == 1).all()
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_a_flipped_bit_is_found_before_it_becomes_a_weight(tmp_path):
    path = tmp_path / "last.ckpt"
    CheckpointFiles().save_checkpoint(checkpoint(1.0, 100_000), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    assert not (torch.load(path, weights_only=True)["state_dict"]["w"] == 1).all(), "torch takes it"
    for load in (CheckpointFiles().load_checkpoint, NodeClassifier.load_from_checkpoint):
        with refused("last.ckpt", "checkpoint damaged checksum archive/data/0", ".ckpt file"):
            load(path)


def test_any_flipped_bit_and_any_cut_is_found(tmp_path):
    """A checkpoint with a flipped bit or a cut end is rejected in one line, or its values are right.

    Bits of the zip directory are flipped too, where they may mean a compression method, a password or a second volume.
    """
    path = tmp_path / "last.ckpt"
    CheckpointFiles().save_checkpoint({**checkpoint(1.0, 10), "plain": 1.5}, path)
    whole = path.read_bytes()
    directory = whole.rindex(b"PK\x01\x02")
    flips = [(place, bit) for place in range(directory, len(whole)) for bit in (0, 3)]
    contents = [whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :] for place, bit in flips]
    refusals = []
    for content in (*contents, *(whole[:size] for size in range(0, len(whole), 50))):
        path.write_bytes(content)
        try:
            found = CheckpointFiles().load_checkpoint(path, weights_only=True)
        except InputError as error:
            refusals.append(str(error))
        else:
            assert (found["state_dict"]["w"] == 1).all()
            assert found["plain"] == 1.5
    assert len(refusals) > len(contents) // 4
    assert not any("\n" in line for line in refusals)
    assert not any("Errno" in line for line in refusals)


def test_what_is_no_checkpoint_is_one_line_in_python(tmp_path):
    CheckpointFiles().save_checkpoint(checkpoint(1.0), tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-30])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "bare").touch()
    (tmp_path / "folder").mkdir()
    torch.save({"a": 1}, tmp_path / "foreign")
    os.mkfifo(tmp_path / "fifo")
    for name, rule in {
        "cut": "damaged",
        "text": "damaged another format",
        "bare": "damaged empty",
        "folder": "no regular file",
        "foreign": "file torch no checkpoint",
        "fifo": "no regular file",
        "missing": "does not exist",
    }.items():
        for load in (CheckpointFiles().load_checkpoint, NodeClassifier.load_from_checkpoint):
            with refused(f"/{name} ", f"checkpoint {rule}", ".ckpt file"):
                load(tmp_path / name)


def test_what_dead_writers_left_is_removed(tmp_path):
    """Saving removes the temporary file of a dead writer on this machine, but not those of running writers or other machines."""
    child = subprocess.Popen(["true"])
    child.wait()
    host, long_ago = socket.gethostname(), time.time() - 3600
    parts = {name: tmp_path / f".last.ckpt.{name}.part" for name in (f"{host}-{child.pid}", f"{host}-1", f"elsewhere-{child.pid}")}
    for part in parts.values():
        part.touch()
        os.utime(part, (long_ago, long_ago))
    CheckpointFiles().save_checkpoint(checkpoint(1.0), tmp_path / "last.ckpt")
    assert [part.exists() for part in parts.values()] == [False, True, True]


def test_two_writers_of_one_checkpoint(writer_of, tmp_path):
    writers = [writer_of(tmp_path / "last.ckpt") for _ in range(2)]
    seen, deadline = set(), time.monotonic() + START_S
    while len(seen) < 50:
        assert time.monotonic() < deadline
        assert all(map(is_there, writers))
        if (tmp_path / "last.ckpt").exists():
            values = CheckpointFiles().load_checkpoint(tmp_path / "last.ckpt")["state_dict"]["w"]
            assert len(values) == 1 << 20
            assert (values == values[0]).all()
            seen.add((tmp_path / "last.ckpt").stat().st_mtime_ns)


def test_a_killed_writer_leaves_a_whole_checkpoint(writer_of, tmp_path):
    path, seen = tmp_path / "last.ckpt", set()
    for delay in (0.0, 0.013, 0.029):
        before = path.stat().st_mtime_ns if path.exists() else 0
        writer, deadline = writer_of(path), time.monotonic() + START_S
        while not path.exists() or path.stat().st_mtime_ns == before:
            assert is_there(writer)
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(writer, signal.SIGKILL)
        while is_there(writer):
            assert time.monotonic() < deadline
            time.sleep(0.001)
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
    with full_disk(len(before) // 2):
        code = main(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=2", "--ckpt_path=last"])
    error = capsys.readouterr().err
    assert code == 2, error
    (line,) = [line for line in error.splitlines() if line.startswith("hoptrain: ")]
    assert "cannot be written (File too large)" in line
    assert "Traceback" not in error
    assert last.read_bytes() == before


def test_the_last_checkpoint_is_found_in_a_folder_with_brackets(tmp_path, monkeypatch, capsys):
    """``--ckpt_path=last`` finds the checkpoint in a folder with brackets, given as the checkpoint's folder or as the root folder."""
    monkeypatch.chdir(tmp_path)
    for option, place in (("--trainer.default_root_dir", "a[1]/version_0/checkpoints"), ("--checkpoint.dirpath", "b[1]")):
        folder = f"{option}={place[:4]}"
        first = fit(folder, "--trainer.max_epochs=1", "--ckpt_path=last")
        assert (
            f"hoptrain: {first.config.fit.checkpoint.dirpath or 'a[1]'} has no last.ckpt to resume from: a new run starts\n"
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


@pytest.mark.parametrize("target", ["last.ckpt", "nowhere"])
def test_a_last_checkpoint_that_is_a_link_to_nowhere(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    link = Path("runs", "version_0", "checkpoints", "last.ckpt")
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    assert main(["fit", "--config", "quickstart", "--ckpt_path", "last"]) == 2
    assert capsys.readouterr().err.endswith(f"hoptrain: checkpoint {link} is no regular file: give the path of a .ckpt file, or last\n")


def test_weights_that_nothing_was_learnt_by_have_to_be_asked_for(tmp_path, monkeypatch, capsys):
    """Commands use untrained weights only with ``--untrained``; ``test_wrong_calls.py`` has the messages without the option."""
    monkeypatch.chdir(tmp_path)
    for command, words in (("validate", "val_acc"), ("test", "test_acc"), ("predict", "predictions.npy")):
        assert main([command, "--config", QUICKSTART, *QUIET, "--untrained"]) == 0
        assert words in capsys.readouterr().out


def test_a_run_of_no_epochs_says_what_its_score_is_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=0"]) == 0
    output = capsys.readouterr()
    assert "no step was trained, so the initial weights are tested" in output.err
    assert "test accuracy 0." in output.out


def test_last_is_the_last_one_though_the_score_was_better_before(tmp_path, monkeypatch):
    """``last.ckpt`` is the checkpoint of the last epoch, even if an earlier epoch was better; Lightning's would be that of the best epoch."""
    monkeypatch.chdir(tmp_path)
    arguments = ("--checkpoint.monitor=train_loss", "--checkpoint.mode=max", "--checkpoint.save_on_train_epoch_end=true")  # the loss falls
    run(["fit", "--config", QUICKSTART, *QUIET, "--trainer.max_epochs=3", *arguments])
    best, last = sorted(tmp_path.glob("runs/*/checkpoints/*.ckpt"))
    assert (best.name[:8], last.name) == ("epoch=0-", "last.ckpt")
    assert torch.load(last, weights_only=True)["global_step"] == 27


SECOND = ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=2", "--trainer.callbacks.save_last=true")
ON_EXCEPTION = ("--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath=failed")
ELSEWHERE = ("--trainer.logger+=CSVLogger", "--trainer.logger.save_dir=logs")


@pytest.mark.parametrize(
    ("others", "folder"),
    [
        (ON_EXCEPTION, "runs/version_0/checkpoints"),
        (SECOND, "runs/version_0/checkpoints"),
        (ELSEWHERE, "logs/lightning_logs/version_0/checkpoints"),
    ],
)
def test_the_checkpoint_is_that_of_the_runs_monitor(tmp_path, monkeypatch, caplog, others, folder):
    """The checkpoint of the run's monitor is reported and resumed from, even if other callbacks and the logger write their own files."""
    monkeypatch.chdir(tmp_path)
    first = fit("--trainer.max_epochs=1", *others)
    kept = kept_by(first)
    assert kept.monitor == "val_acc"
    assert f"checkpoint at {folder}/{Path(kept.best_model_path).name}" in caplog.text
    second = fit("--trainer.max_epochs=2", "--ckpt_path=last", *others)
    resumed = kept_by(second)
    assert second.trainer.global_step == 2 * first.trainer.global_step
    assert (Path(resumed.dirpath), Path(resumed.best_model_path).parent) == (Path(folder), Path(folder))
    assert resumed.best_model_score >= kept.best_model_score, "the best so far is not forgotten"
    assert f"checkpoint at {folder}/{Path(resumed.best_model_path).name}" in caplog.text


def test_what_an_exception_left_is_named_when_it_is_resumed_from(tmp_path, monkeypatch, capsys):
    """If a run resumes from a checkpoint that an exception left, a line names it; the best checkpoint stays in the run's folder."""
    monkeypatch.chdir(tmp_path)
    first = fit("--trainer.max_epochs=1", *ON_EXCEPTION)
    assert "resumes" not in capsys.readouterr().err
    first.trainer.save_checkpoint("failed/on_exception.ckpt")
    capsys.readouterr()
    second = fit("--trainer.max_epochs=2", *ON_EXCEPTION)
    assert second.trainer.fit_loop.epoch_progress.total.completed == 2
    assert "hoptrain: resuming from failed/on_exception.ckpt, written at an exception; remove" in capsys.readouterr().err
    assert kept_by(second).dirpath == kept_by(first).dirpath == "runs/version_0/checkpoints"
    assert kept_by(second).best_model_score >= kept_by(first).best_model_score
    assert not os.path.exists("failed/on_exception.ckpt"), "a run that ends well removes it"


def test_the_best_so_far_is_found_in_a_folder_that_was_moved(tmp_path, monkeypatch):
    """The best checkpoint is found in a folder that was moved, although no epochs are left to train; a deleted one is forgotten."""
    monkeypatch.chdir(tmp_path)
    first = kept_by(fit("--trainer.max_epochs=1"))
    os.rename("runs", "moved")
    second = kept_by(fit("--trainer.max_epochs=1", f"--trainer.default_root_dir={tmp_path / 'moved'}", "--ckpt_path=last"))
    assert second.best_model_path == str(tmp_path / "moved/version_0/checkpoints" / Path(first.best_model_path).name)
    assert second.best_model_score == first.best_model_score
    assert [*second.best_k_models] == [second.best_model_path]
    Path(second.best_model_path).unlink()
    third = kept_by(fit("--trainer.max_epochs=1", "--trainer.default_root_dir=moved", "--ckpt_path=last"))
    assert (third.best_model_path, third.best_model_score, third.best_k_models) == ("", None, {})


def test_weights_alone_cannot_be_resumed_from(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fit("--trainer.max_epochs=0").trainer.save_checkpoint("weights.ckpt", weights_only=True)
    assert main(["fit", "--config", QUICKSTART, *QUIET, "--ckpt_path=weights.ckpt"]) == 2
    assert (
        "hoptrain: the checkpoint has only weights, no training state (checkpoint.save_weights_only): give another"
        in capsys.readouterr().err
    )
