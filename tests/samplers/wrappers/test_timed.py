"""Nodes with times as items of a loader: the batches equal ``TemporalSampler``'s, on the CPU and on CUDA."""

import numpy as np
import pytest
from nodewise_cuda_case import contents

from hoptrain.engine import Graph
from hoptrain.samplers import TemporalSampler
from hoptrain.samplers.wrappers.timed import TimedSeeds

SEEDS, TIMES = np.array([4, 4, 0, 11]), np.array([9, 3, 20, 14])


@pytest.fixture(scope="module")
def graph():
    generator = np.random.default_rng(3)
    return Graph.from_edges(*generator.integers(0, 12, (2, 80)), 12, times=generator.integers(0, 20, 80))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_items_are_seeds_and_their_times(graph, device):
    sampler = TemporalSampler([2])
    batch = TimedSeeds(sampler).prepare(graph, SEEDS).sample(graph, np.concatenate([SEEDS, TIMES]), seed=5, batch=2, device=device)
    wanted = sampler.sample(graph, SEEDS, times=TIMES, seed=5, batch=2)
    assert contents(batch) == contents(wanted)
    assert batch.num_seeds == 4
