"""``hoptrain bench accuracy`` trains baselines next to the model of a configuration."""

import pytest

from hoptrain.benchmarks.accuracy import UNIFORM
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.configs import known


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_draws_are_trained_by_their_options(data_root, tmp_path, monkeypatch, name):
    """With the benchmark's options for uniform sampling, an epoch runs on Cora; the command would reject an unknown option."""
    monkeypatch.setenv("HOPTRAIN_DATA", str(data_root))
    config, options = UNIFORM[name]
    assert {name, config} <= set(known())
    few = {"data.dataset": "cora", "trainer.max_epochs": 1, "trainer.default_root_dir": tmp_path, "trainer.enable_progress_bar": False}
    assert main(["fit", "--config", config, *(f"--{key}={value}" for key, value in (options | few).items())]) == 0
