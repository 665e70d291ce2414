"""Runs that start together have separate folders."""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from threading import Barrier

import pytest
from lightning_utilities.core.rank_zero import rank_zero_only

from hoptrain.trainers.callbacks.run_folder import Curves, RunFolder, make_loggers

NUM_RUNS = 8


needs_tensorboard = pytest.mark.skipif(
    not find_spec("tensorboard"), reason="tensorboard is not installed: pip install hoptrain[tensorboard]"
)


@needs_tensorboard
def test_runs_that_start_together_have_a_folder_each(tmp_path):
    (tmp_path / "runs" / "version_3").mkdir(parents=True)
    together = Barrier(NUM_RUNS)

    def version_of(_):
        folder = RunFolder(tmp_path / "runs", name="")
        together.wait()
        assert Curves(folder).version == folder.version
        assert Curves(folder).log_dir == folder.log_dir
        return folder.version

    with ThreadPoolExecutor(NUM_RUNS) as threads:
        versions = sorted(threads.map(version_of, range(NUM_RUNS)))
    assert versions == [*range(4, 4 + NUM_RUNS)]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(f"version_{number}" for number in (3, *versions))


@pytest.mark.parametrize("rank", [1, 3])
def test_the_other_ranks_make_no_folder(tmp_path, monkeypatch, rank):
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    assert RunFolder(tmp_path / "runs", name="").version == 0
    assert not (tmp_path / "runs").exists()


def test_a_run_without_tensorboard_has_its_table_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("hoptrain.trainers.callbacks.run_folder.find_spec", lambda name: None)
    assert [type(logger) for logger in make_loggers(str(tmp_path))] == [RunFolder]


@needs_tensorboard
def test_a_run_with_tensorboard_has_curves_beside_its_table(tmp_path):
    table, curves = make_loggers(str(tmp_path))
    assert (type(table), type(curves)) == (RunFolder, Curves)
