"""Prediction in a pipeline gives the logits of one process, in order, for nodes and images."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hoptrain.trainers.cli import main

STRATEGY = "--trainer.strategy=hoptrain.trainers.pipeline.PipelineStrategy"
START_S = 200  # a busy machine takes a minute to start four ranks
pytestmark = [pytest.mark.timeout(3 * START_S), pytest.mark.filterwarnings("ignore")]  # Lightning's warnings about a small run


def predicted(folder, config, *options, devices=1):
    """Return the predictions that a run in separate processes writes."""
    arguments = [f"--config={config}", "--untrained", f"--trainer.default_root_dir={folder}", "--trainer.accelerator=cpu"]
    quiet = ["--trainer.logger=false", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    run = subprocess.run(
        [sys.executable, "-m", "hoptrain.trainers.cli", "predict", *arguments, *quiet, f"--trainer.devices={devices}", *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return np.load(folder / "predictions.npy", allow_pickle=False)


@pytest.mark.parametrize(
    ("config", "options", "devices"),
    [
        ("quickstart", ("--trainer.strategy.stages=2", "--trainer.strategy.data=2"), 4),
        ("digits_vig", ("--trainer.strategy.stages=3", "--trainer.strategy.balance=[2,2,2]", "--trainer.strategy.chunks=5"), 3),
    ],
)
def test_scores_are_those_of_one_process(tmp_path, config, options, devices):
    one = predicted(tmp_path / "one", config)
    several = predicted(tmp_path / "several", config, STRATEGY, *options, devices=devices)
    assert one.shape == several.shape == (1797, 10)
    assert one.std() > 0
    np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-6)


def test_a_model_without_stages_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [STRATEGY, "--trainer.strategy.stages=2", "--trainer.devices=2", "--trainer.accelerator=cpu", "--untrained"]
    assert main(["predict", "--config=quickstart", *options, "--model.norm=batch"]) == 2
    assert "norms.0 is a BatchNorm1d" in capsys.readouterr().err
