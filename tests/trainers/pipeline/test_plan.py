"""Cuts: given, even, and by times; and plans that cannot be."""

import itertools

import numpy as np
import pytest
import torch
from pipeline_case import make_chunk, make_model
from torch import nn

from hoptrain.engine import InputError
from hoptrain.trainers.pipeline import Chunk, Plan, layer_seconds
from hoptrain.trainers.pipeline.pipeline import check_model


@pytest.mark.parametrize(
    ("options", "layers", "lengths"),
    [
        ({"stages": 1}, 3, [3]),
        ({"stages": 2}, 5, [3, 2]),
        ({"stages": 2, "balance": (1, 4)}, 5, [1, 4]),
        ({"stages": 2, "schedule": "interleaved-1f1b"}, 5, [2, 1, 1, 1]),
        ({"stages": 2, "schedule": "interleaved-1f1b", "balance": (1, 1, 1, 1, 1, 1)}, 6, [1] * 6),
    ],
)
def test_runs_of_layers(options, layers, lengths):
    runs = Plan(**options).runs(layers)
    assert [len(run) for run in runs] == lengths
    assert [i for run in runs for i in run] == list(range(layers))


def test_cuts_by_time_have_the_shortest_slowest_run():
    """Against all cuts there are."""
    rng = np.random.default_rng(0)
    for stages in (1, 2, 3, 4):
        seconds = list(rng.random(7))
        ends = [(0, *cut, 7) for cut in itertools.combinations(range(1, 7), stages - 1)]
        best = min(max(sum(seconds[a:b]) for a, b in itertools.pairwise(end)) for end in ends)
        found = Plan(stages=stages).balanced(seconds).runs(7)
        assert max(sum(seconds[i] for i in run) for run in found) == pytest.approx(best)


def test_times_of_layers():
    """A layer that does more takes longer; gradients and torch's generator are left alone."""

    class Work(nn.Module):
        num_layers = 3

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.eye(128))

        def layer(self, i, x):
            for _ in range(200 if i == 1 else 1):
                x = x @ self.weight
            return x

        def shape(self, i):
            return (128,)

        def modules_of(self, i):
            return ()

    model, state = Work(), torch.get_rng_state()
    chunk = Chunk(rows=(64,) * 4, inputs=((),) * 3, x=torch.randn(64, 128, generator=torch.Generator().manual_seed(0)))
    first, second, third = layer_seconds(model, chunk, lambda out, _: out.sum())
    assert second > 5 * max(first, third)
    assert model.weight.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert len(layer_seconds(make_model("gat", 3), make_chunk(np.arange(9), 3), lambda out, _: out.sum(), rounds=1)) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stages": 0}, "stages is 0"),
        ({"chunks": 0}, "chunks is 0"),
        ({"schedule": "zero-bubble"}, "schedule is 'zero-bubble'"),
        ({"stages": 2, "balance": (2, 0)}, r"balance \[2, 0\] leaves a stage empty"),
        ({"stages": 2, "balance": (2, 1, 1)}, "for 2 stages: give each its number of layers, 2 numbers"),
        ({"stages": 2, "schedule": "interleaved-1f1b", "balance": (2, 1)}, "give 4 numbers, or a larger multiple of 2"),
    ],
)
def test_plans_that_cannot_be(options, words):
    with pytest.raises(InputError, match=words):
        Plan(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stages": 4}, "2 layers for 4 runs of layers"),
        ({"stages": 2, "schedule": "interleaved-1f1b"}, "a stage would be empty; use fewer stages, another schedule or a deeper model"),
        ({"stages": 2, "balance": (2, 1)}, r"balance \[2, 1\] is for 3 layers, the model has 2"),
    ],
)
def test_plans_that_a_model_is_too_shallow_for(options, words):
    with pytest.raises(InputError, match=words):
        check_model(make_model("sage", 2), Plan(**options))


def test_models_that_cannot_be_divided():
    model = make_model("sage", 3)
    model.norms[1] = nn.BatchNorm1d(8)
    assert check_model(model, Plan(stages=2, chunks=1)) == [range(2), range(2, 3)]
    with pytest.raises(InputError, match=r"norms\.1 is a BatchNorm1d, whose statistics are those of a whole batch, .* 4 chunks"):
        check_model(model, Plan(stages=2, chunks=4))
    model = make_model("sage", 3)
    model.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(InputError, match="scale belongs to no layer, and no stage could train it"):
        check_model(model, Plan(stages=2))
    with pytest.raises(InputError, match="Linear cannot be cut into stages"):
        check_model(nn.Linear(2, 2), Plan(stages=2))


def test_a_world_of_another_size():
    with pytest.raises(InputError, match="3 processes for data 2 x stages 2: start 4"):
        Plan(stages=2, data=2).check_world(3)


@pytest.mark.parametrize(("schedule", "stages"), [("gpipe", 4), ("1f1b", 4), ("interleaved-1f1b", 2), ("interleaved-1f1b", 4)])
def test_schedules_get_a_number_of_chunks_that_they_take(schedule, stages):
    for chunks in range(1, 20):
        slots = Plan(stages=stages, chunks=chunks, schedule=schedule).num_slots
        assert slots >= chunks
        assert slots < chunks + stages
        assert schedule != "1f1b" or slots >= stages
        assert schedule != "interleaved-1f1b" or slots % max(1, slots // stages) == 0
