"""A data file truncated while ``hoptrain fit`` trains out of core ends the run with one line, whichever file and reader it is."""

import os
import re

import numpy as np
import pytest
from pytorch_lightning import Callback

from hoptrain.engine import Dataset
from hoptrain.trainers.cli import main


class Cut(Callback):
    """A callback that truncates a file in the middle of a training."""

    path, size = None, 0

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 3:
            os.truncate(self.path, self.size)


OPTIONS = (
    "--config=quickstart", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu",
    "--trainer.max_epochs=3", "--data.batch_size=32", "--trainer.callbacks+=test_fit_cut_files.Cut",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    draw, number = np.random.default_rng(0), 8000
    edges = np.stack([(number * draw.random(60_000) ** 3).astype(np.int64), draw.integers(0, number, 60_000)])
    splits = {"train": np.arange(0, number, 10), "val": np.arange(1, number, 40), "test": np.arange(2, number, 40)}
    path = tmp_path_factory.mktemp("cut") / "data"
    Dataset(x=draw.random((number, 32), dtype=np.float32), y=draw.integers(0, 3, number), edge_index=edges, splits=splits).save(path)
    return path


@pytest.mark.parametrize(
    ("file", "left", "num_workers"),
    [("x", 9000, 0), ("y", 200, 1), ("indptr", 9000, 0), ("indices", 9000, 1), ("indices", -100, 1)],
)
def test_a_file_that_is_cut_off_is_one_line(folder, tmp_path, monkeypatch, capsys, file, left, num_workers):
    """A truncated data file ends the run with one line.

    A negative ``left`` is the number of bytes removed at the end; within the last page, no read fails.
    """
    monkeypatch.chdir(tmp_path)
    Dataset.open(folder).save(tmp_path / "data")
    path = tmp_path / "data" / f"{file}.npy"
    monkeypatch.setattr(Cut, "path", path)
    monkeypatch.setattr(Cut, "size", left if left > 0 else path.stat().st_size + left)
    options = (f"--data.dataset={tmp_path / 'data'}", "--data.feature_cache=500KiB", f"--data.num_workers={num_workers}")
    assert main(["fit", *OPTIONS, *options]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(
        rf".*{re.escape(str(path))} (ends at|has|cannot be mapped) .* cut off while it was in use; .*copy it again.*", said.splitlines()[-1]
    ), said
    assert "Traceback" not in said
