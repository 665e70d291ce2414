"""Prediction in a pipeline gives the logits of one process, in order, for nodes and images."""

from functools import partial

import numpy as np
import pytest
from ranks.command import here, in_ranks
from ranks.on_machines import START_S

from hoptrain.trainers.cli import main

STRATEGY = "--trainer.strategy=hoptrain.trainers.pipeline.PipelineStrategy"
pytestmark = [pytest.mark.timeout(3 * START_S), pytest.mark.filterwarnings("ignore")]  # Lightning's warnings about a small run


def predicted(run, folder, config, *options):
    """Return the predictions that a command writes."""
    arguments = [f"--config={config}", "--untrained", f"--trainer.default_root_dir={folder}", "--trainer.accelerator=cpu"]
    quiet = ["--trainer.logger=false", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    run("predict", *arguments, *quiet, *options)
    return np.load(folder / "predictions.npy", allow_pickle=False)


@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize(
    ("config", "options", "devices"),
    [
        ("quickstart", ("--trainer.strategy.stages=2", "--trainer.strategy.data=2"), 4),
        ("digits_vig", ("--trainer.strategy.stages=3", "--trainer.strategy.balance=[2,2,2]", "--trainer.strategy.chunks=5"), 3),
    ],
)
def test_scores_are_those_of_one_process(tmp_path, capsys, config, options, devices):
    one = predicted(partial(here, capsys), tmp_path / "one", config)
    ranks = (f"--trainer.devices={devices}", STRATEGY, *options)
    several = predicted(partial(in_ranks, number=devices), tmp_path / "several", config, *ranks)
    assert one.shape == several.shape == (1797, 10)
    assert one.std() > 0
    np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-6)


def test_a_model_without_stages_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [STRATEGY, "--trainer.strategy.stages=2", "--trainer.devices=2", "--trainer.accelerator=cpu", "--untrained"]
    assert main(["predict", "--config=quickstart", *options, "--model.norm=batch"]) == 2
    assert "norms.0 is a BatchNorm1d" in capsys.readouterr().err
