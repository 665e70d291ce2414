"""The soak for a few seconds: it compares the weights, and finds a difference."""

import argparse

import pytest

from hoptrain.benchmarks import soak
from hoptrain.engine import InputError


def arguments(minutes):
    return argparse.Namespace(quick=False, minutes=minutes)


def test_a_few_seconds(monkeypatch):
    monkeypatch.setattr(soak, "_PAUSE_S", (0.5, 0.9))
    monkeypatch.setattr(soak, "_ACTIONS", (soak.signal.SIGKILL,))
    summary = soak.run(arguments(0.05)).summary
    assert summary["num_SIGKILL"] > 0
    assert summary["steps"] > 0
    assert summary["equal_weights"] == 6


def test_other_weights_are_an_error(monkeypatch):
    train = soak._train

    def train_differently(*args, **options):
        weights, steps, seconds = train(*args, **options)
        weights[next(iter(weights))].add_(1e-6)
        return weights, steps, seconds

    def train_without_faults(num_workers, *args, **options):
        return (train if num_workers else train_differently)(0, *args, **options)

    monkeypatch.setattr(soak, "_train", train_without_faults)
    with pytest.raises(RuntimeError, match=r"after \d+ steps with faults these weights differ from those without: model\.\S+$"):
        soak.run(arguments(0.01))


def test_no_time_is_a_mistake():
    with pytest.raises(InputError, match="minutes is 0: training takes time"):
        soak.run(arguments(0))
