"""Pipeline plans: given, equal and timed balances, and invalid plans."""

import itertools

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pipeline_case import make_chunk, make_model
from torch import nn

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
    """Cuts by time minimise the time of the slowest stage: it equals the best over all possible cuts."""
    rng = np.random.default_rng(0)
    for stages in (1, 2, 3, 4):
        seconds = list(rng.random(7))
        ends = [(0, *cut, 7) for cut in itertools.combinations(range(1, 7), stages - 1)]
        best = min(max(sum(seconds[a:b]) for a, b in itertools.pairwise(end)) for end in ends)
        found = Plan(stages=stages).balanced(seconds).runs(7)
        assert max(sum(seconds[i] for i in run) for run in found) == pytest.approx(best)


def test_times_of_layers():
    """A layer with more work has a longer time; timing leaves gradients and torch's random state unchanged."""

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


def with_batch_statistics():
    model = make_model("sage", 3)
    model.norms[1] = nn.BatchNorm1d(8)
    return model


def test_batch_statistics_of_one_chunk():
    assert check_model(with_batch_statistics(), Plan(stages=2, chunks=1)) == [range(2), range(2, 3)]


@pytest.mark.parametrize(("schedule", "stages"), [("gpipe", 4), ("1f1b", 4), ("interleaved-1f1b", 2), ("interleaved-1f1b", 4)])
def test_schedules_get_a_number_of_chunks_that_they_take(schedule, stages):
    for chunks in range(1, 20):
        slots = Plan(stages=stages, chunks=chunks, schedule=schedule).num_slots
        assert slots >= chunks
        assert slots < chunks + stages
        assert schedule != "1f1b" or slots >= stages
        assert schedule != "interleaved-1f1b" or slots % max(1, slots // stages) == 0


def shallow(**options):
    check_model(make_model("sage", 2), Plan(**options))


def parameter_of_no_layer():
    model = make_model("sage", 3)
    model.scale = nn.Parameter(torch.ones(1))
    check_model(model, Plan(stages=2))


MISTAKES = {
    "no stages": Mistake(lambda: Plan(stages=0), value="stages is 0", rule="must least 1", remedy="1"),
    "no chunks": Mistake(lambda: Plan(chunks=0), value="chunks is 0", rule="must least 1", remedy="1"),
    "an unknown schedule": Mistake(
        lambda: Plan(schedule="zero-bubble"), value="'zero-bubble'", rule="schedule", remedy="gpipe 1f1b interleaved-1f1b"
    ),
    "a stage without layers": Mistake(
        lambda: Plan(stages=2, balance=(2, 0)), value="[2, 0]", rule="balance stage empty layer", remedy="2 positive numbers"
    ),
    "a balance for more stages": Mistake(
        lambda: Plan(stages=2, balance=(2, 1, 1)), value="[2, 1, 1]", rule="balance 2 stages layers", remedy="2 numbers"
    ),
    "a balance for stages that are not interleaved": Mistake(
        lambda: Plan(stages=2, schedule="interleaved-1f1b", balance=(2, 1)),
        value="[2, 1]",
        rule="balance 2 interleaved runs",
        remedy="4 numbers multiple 2",
    ),
    "fewer layers than stages": Mistake(
        lambda: shallow(stages=4), value="2 layers", rule="4 stages 1f1b empty", remedy="fewer stages deeper model"
    ),
    "fewer layers than interleaved runs": Mistake(
        lambda: shallow(stages=2, schedule="interleaved-1f1b"),
        value="2 layers",
        rule="4 runs stages interleaved-1f1b",
        remedy="fewer stages another schedule deeper",
    ),
    "a balance for a deeper model": Mistake(
        lambda: shallow(stages=2, balance=(2, 1)), value="[2, 1]", rule="balance 3 layers model 2", remedy="give"
    ),
    "statistics of whole batches in chunks": Mistake(
        lambda: check_model(with_batch_statistics(), Plan(stages=2, chunks=4)),
        value="norms.1",
        rule="BatchNorm1d statistics 4 chunks",
        remedy="norm: layer one chunk",
    ),
    "a parameter of no layer": Mistake(parameter_of_no_layer, value="scale", rule="no layer stage train", remedy="modules_of module"),
    "a model without layers": Mistake(
        lambda: check_model(nn.Linear(2, 2), Plan(stages=2)),
        value="Linear",
        rule="divided stages",
        remedy="num_layers layer shape modules_of",
    ),
    "a world of another size": Mistake(
        lambda: Plan(stages=2, data=2).check_world(3), value="3 processes", rule="data 2 stages 2", remedy="start 4 trainer.devices"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
