"""Invalid data and checkpoints end with one line and exit code 2; ``test_wrong_calls.py`` has the table of invalid options."""

import importlib.metadata
import io
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import exits

from hoptrain.engine import Dataset
from hoptrain.trainers.cli import main

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")


@pytest.fixture
def fails(capsys, monkeypatch, tmp_path):
    """Return a function that runs a command that must fail, and returns the one line that the command prints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert code == 2, error
        assert error.startswith("hoptrain: ")
        assert error.count("\n") == 1, error
        return error

    return run


def fit(fails, *arguments):
    return fails("fit", "--config", QUICKSTART, *arguments)


@pytest.fixture
def tiny(dataset, tmp_path):
    """Save a variation of the random data set, and return its folder."""

    def save(**changes):
        fields = {"name": "tiny", "graph": dataset.graph, "x": dataset.x, "y": dataset.y, "splits": dataset.splits, "num_classes": 3}
        Dataset(**fields | changes).save(tmp_path / "tiny")
        return tmp_path / "tiny"

    return save


def test_a_truncated_folder(fails, tiny):
    folder = tiny()
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-10])
    assert "x.npy" in fit(fails, "--data.dataset", folder)


def test_an_altered_folder(fails, tiny):
    folder = tiny()
    altered = bytearray((folder / "indices.npy").read_bytes())
    altered[-1] ^= 1
    (folder / "indices.npy").write_bytes(altered)
    assert "does not match its checksum" in fit(fails, "--data.dataset", folder)


def test_a_foreign_folder(fails, tmp_path):
    (tmp_path / "foreign").mkdir()
    assert "foreign" in fit(fails, "--data.dataset", tmp_path / "foreign")


def test_an_empty_train_split(fails, tiny):
    assert "the train split of tiny is empty" in fit(fails, "--data.dataset", tiny(splits={"train": np.empty(0, np.int64)}))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_a_checkpoint_that_is_none(fails, tmp_path):
    (tmp_path / "foreign.ckpt").write_bytes(pickle.dumps(Path("x")))
    assert "foreign.ckpt is damaged, or has objects other than tensors" in fails(
        "test", "--config", QUICKSTART, "--ckpt_path", tmp_path / "foreign.ckpt"
    )


def test_a_checkpoint_of_another_model(fails, tmp_path, capsys):
    small = ("--config", QUICKSTART, "--trainer.max_epochs", "1", "--data.num_workers", "0", "--trainer.enable_progress_bar", "false")
    assert main(["fit", *small, "--trainer.default_root_dir", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    checkpoint = tmp_path / "runs" / "version_0" / "checkpoints" / "last.ckpt"
    line = fails("test", *small, "--model.hidden_channels", 64, "--ckpt_path", checkpoint)
    assert "the checkpoint's model has hidden_channels 128, this one 64" in line


@pytest.mark.parametrize("name", ["nan", "edge", "seed"])
def test_data_that_cannot_be(fails, tmp_path, name):
    """NaN features, an edge to a missing node, and a split beyond the graph are each reported in one line."""
    arrays = {
        "indptr": np.array([0, 1, 2]),
        "indices": np.array([1, 0], np.int32),
        "x": np.ones((2, 3), np.float32),
        "y": np.array([0, 1]),
        "train_mask": np.array([True, False]),
        "val_mask": np.array([False, True]),
        "test_mask": np.array([False, True]),
    }
    if name == "nan":
        arrays["x"][1, 2] = np.nan
    elif name == "edge":
        arrays["indices"][0] = 7
    else:
        arrays["train_mask"] = np.array([True, False, True])
    np.savez(tmp_path / "broken.npz", **arrays)
    line = fit(fails, "--data.dataset", "broken", "--data.root", tmp_path)
    assert {"nan": "x[1, 2] is nan", "edge": "node 7", "seed": "train"}[name] in line


@pytest.mark.filterwarnings("ignore:Total length of `DataLoader`")
def test_a_data_set_with_a_train_split_alone_trains(tiny, dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tiny(splits={"train": dataset.splits["train"]})
    options = ("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--data.num_workers=0")
    assert main(["fit", "--config", QUICKSTART, f"--data.dataset={folder}", *options]) == 0
    assert (tmp_path / "runs" / "version_0" / "checkpoints" / "last.ckpt").exists()
    assert "test accuracy" not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Total length of `DataLoader`")
def test_runs_without_a_logger_share_a_folder(tiny, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.yaml").write_text("that of the run before")
    folder = tiny(splits={"train": dataset.splits["train"]})
    options = ("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--trainer.logger=false", "--data.num_workers=0")
    assert main(["fit", "--config", QUICKSTART, f"--data.dataset={folder}", "--model.lr=0.02", *options]) == 0
    assert "lr: 0.02" in (tmp_path / "runs" / "config.yaml").read_text()


def test_several_labels_a_node_are_scored_by_f1(tiny, dataset, tmp_path, monkeypatch, capsys):
    """Several labels per node are evaluated by F1, and a model learns labels that are two bits of the features."""
    monkeypatch.chdir(tmp_path)
    folder = tiny(y=(dataset.x[:, :2] > 0.5).astype(np.uint8), num_classes=2)
    options = ("--trainer.max_epochs=40", "--model.lr=0.02", "--trainer.enable_progress_bar=false", "--data.num_workers=0")
    assert main(["fit", "--config", QUICKSTART, f"--data.dataset={folder}", *options]) == 0
    name, score = capsys.readouterr().out.splitlines()[-2].rsplit(" ", 1)
    assert name == "test micro-F1"
    assert float(score) > 0.85


@pytest.mark.parametrize("value", ["0", "-1", "abc", "1.5", "²"])
def test_a_number_of_threads_that_numba_cannot_have(fails, monkeypatch, value):
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    assert f"NUMBA_NUM_THREADS is {value!r}: it must be an integer, 1 or more" in fails("fit", "--config", "quickstart")


def test_names_in_a_file_do_not_steer_the_terminal(fails, tiny, capsys):
    folder = tiny(name="tiny\x1b[2J", meta={"source\r": "\x1b]0;title\x07\u202e"})
    assert main(["data", "info", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert r"tiny\x1b[2J" in shown
    assert r"meta source\r" in shown
    assert r"\x1b]0;title\x07\u202e" in shown
    header = (folder / "header.json").read_text()
    (folder / "header.json").write_text(header.replace('"kind": "dataset"', '"kind": "data\\u001b[31m"'))
    assert r"data\x1b[31m" in fails("data", "info", folder)


def test_what_the_terminals_encoding_lacks_ends_nothing(tiny, monkeypatch):
    folder = tiny(name="Größe")
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["data", "info", str(folder)]) == 0
    sys.stdout.flush()
    assert rb"Gr\xf6\xdfe" in sys.stdout.buffer.getvalue()


def test_a_folder_whose_name_is_no_utf8(tiny, tmp_path, monkeypatch):
    folder = tiny().rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    for arguments in (
        ["data", "convert", folder, tmp_path / "copy"],
        ["data", "convert", tmp_path / "copy", f"{folder}2"],
        ["data", "info", f"{folder}2"],
    ):
        assert main([str(argument) for argument in arguments]) == 0
    sys.stdout.flush()
    assert rb"\udcff2" in sys.stdout.buffer.getvalue()


def test_version_and_help(capsys, monkeypatch):
    """``--version`` and ``--help`` work in a checkout that is not installed."""
    real = importlib.metadata.distribution
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: real(name if name != "hoptrain" else "no-such-distribution"))
    for option, words in (("--version", "hoptrain 0."), ("--help", "train a model, then test its best checkpoint")):
        with exits(0):
            main([option])
        assert words in capsys.readouterr().out
