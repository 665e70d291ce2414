"""A few seconds of ``hoptrain bench soak`` compare the weights and find a difference."""

import argparse

import pytest
from cases.mistakes import refused

from hoptrain.benchmarks import soak
from hoptrain.kernels.child_process import python

pytestmark = pytest.mark.timeout(600)  # four starts of two ranks, each a minute on a busy machine


def test_a_few_seconds(monkeypatch):
    """If rank 1 is killed in one of its first steps, the resumed training ends with equal weights."""
    monkeypatch.setattr(soak, "PAUSE_S", (0.0, 0.1))
    monkeypatch.setattr(soak, "ACTIONS", (soak.signal.SIGKILL,))
    monkeypatch.setattr(soak, "TARGETS", ("rank 1",))
    summary = soak.run(argparse.Namespace(quick=False, minutes=0.01)).summary
    assert (summary["num_rank_1_SIGKILL"], summary["starts"]) == (1, 2)
    assert summary["steps"] > 0
    assert summary["equal_weights"] == 6


class Instant:
    """A stand-in for a training, whose weights differ between the runs with and without faults."""

    def __init__(self, folder):
        self.weight = soak.SEED if folder.name == "disturbed" else soak.SEED + 1e-6

    def checkpoint(self):
        import torch

        return {"global_step": 30, "state_dict": {"model.bias": torch.zeros(2), "model.weight": torch.full((2,), self.weight)}}

    def finish(self, steps, workers, patience):
        pass


def test_other_weights_are_an_error(monkeypatch):
    monkeypatch.setattr(soak, "Training", Instant)
    monkeypatch.setattr(soak, "disturb", lambda training, seconds: None)
    with refused("model.weight", "40 steps faults weights differ", error=RuntimeError):
        soak.run(argparse.Namespace(quick=False, minutes=1))


def test_a_run_that_fails_by_itself_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "python", lambda *words: python("-c", "import sys; sys.exit(sys.argv[-1])", *words))
    training = soak.Training(tmp_path / "run")
    with refused("training", "failed", error=RuntimeError, below="no_such_option"):
        training.finish(10, 0, 100, "--no_such_option=1")


def test_no_time_is_a_mistake():
    with refused("minutes is 0", "above 0", "give a longer time"):
        soak.run(argparse.Namespace(quick=False, minutes=0))
