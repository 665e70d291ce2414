"""A file that is cut off while ``hoptrain fit`` trains on it beyond memory is one line, whichever it is, and whoever reads it."""

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from hoptrain.engine import Dataset

pytestmark = pytest.mark.timeout(400)
CUTS = """
    import os, sys
    from pytorch_lightning import Callback
    from hoptrain.trainers.cli import main

    class Cut(Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 3:
                os.truncate(sys.argv[1], int(sys.argv[2]))

    if __name__ == "__main__":
        raise SystemExit(main(["fit", *sys.argv[3:]]))
"""
OPTIONS = (
    "--config=quickstart", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu",
    "--trainer.max_epochs=3", "--data.batch_size=32", "--trainer.callbacks+=cuts.Cut",
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
    [("x", 9000, 0), ("y", 200, 1), ("y", 200, 0), ("indptr", 9000, 0), ("indices", 9000, 1), ("indices", 9000, 0), ("indices", -100, 1)],
)
def test_a_file_that_is_cut_off_is_one_line(folder, tmp_path, file, left, num_workers):
    """A negative number leaves so many bytes out at the end: where the last page is cut, no read of it fails."""
    (tmp_path / "cuts.py").write_text(textwrap.dedent(CUTS))
    Dataset.open(folder).save(tmp_path / "data")
    path = tmp_path / "data" / f"{file}.npy"
    size = left if left > 0 else path.stat().st_size + left
    command = [sys.executable, "cuts.py", path, str(size), *OPTIONS, f"--data.dataset={tmp_path / 'data'}", "--data.memory=500KiB"]
    run = subprocess.run(
        [*command, f"--data.num_workers={num_workers}"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 2, run.stderr
    assert re.fullmatch(rf".*{re.escape(str(path))} (ends at|has) .* cut off while it was in use; .*copy it again.*", last), run.stderr
    assert "Traceback" not in run.stderr
