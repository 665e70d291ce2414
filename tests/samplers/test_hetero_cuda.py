"""Sampling of typed edges on CUDA, mini-batch for mini-batch and bit for bit that of the CPU."""

import numpy as np
import pytest
from cuda_case import _quick_simulator, needs_cuda, to_host  # noqa: F401
from nodewise_cuda_case import ADDRESS, on_cuda

from hoptrain.engine import HeteroGraph, InputError
from hoptrain.samplers import HeteroSampler

pytestmark = needs_cuda


@pytest.fixture(scope="module")
def typed():
    """Two relations into one type, one within it, and one into a type that is reached later; a type that nothing reaches."""
    rng = np.random.default_rng(0)

    def edges(num_src, num_dst, number):
        return rng.integers(0, num_src, number), rng.integers(0, num_dst, number)

    relations = {("p", "cites", "p"): edges(20, 20, 60), ("a", "writes", "p"): edges(15, 20, 50), ("p", "of", "a"): edges(20, 15, 40)}
    return HeteroGraph.from_edges({"p": 20, "a": 15, "venue": 4}, relations | {("p", "in", "venue"): edges(20, 4, 10)})


def contents(batch):
    facts = batch.seed_type, batch.num_seeds, batch.seed, batch.epoch, batch.batch
    num_src = [{relation: block.num_src for relation, block in hop.items()} for hop in batch.blocks]
    return facts, num_src, {name: (to_host(array).dtype, to_host(array).tolist()) for name, array in batch.arrays().items()}


@pytest.mark.parametrize(
    ("fanouts", "options", "kernel"),
    [
        ([2, 3], {}, "sample"),
        ([2, -1], {"replace": True}, "transit"),
        ({"p:cites:p": [2, 0], "a:writes:p": [0, -1], "p:of:a": [3, 2], "p:in:venue": [-1, 1]}, {}, "auto"),
    ],
)
def test_equal_to_the_cpu(typed, fanouts, options, kernel):
    """The second bulk finds buffers larger than it needs."""
    sampler, workspace = HeteroSampler(fanouts, "p", **options), on_cuda(kernel)
    for bulk in ([[3, 7, 1], [19, 0]], [[5]]):
        seeds = [np.array(own) for own in bulk]
        found = [contents(batch) for batch in sampler.sample_bulk(typed, seeds, workspace=workspace, **ADDRESS)]
        assert found == [contents(batch) for batch in sampler.sample_bulk(typed, seeds, **ADDRESS)]


def test_a_bulk_of_16_and_mistakes(typed):
    sampler, workspace, seeds = HeteroSampler([2], "a"), on_cuda(), [np.array([v % 15]) for v in range(16)]
    found = [contents(batch) for batch in sampler.sample_bulk(typed, seeds, workspace=workspace, **ADDRESS)]
    assert found == [contents(batch) for batch in sampler.sample_bulk(typed, seeds, **ADDRESS)]
    with pytest.raises(InputError, match="seed 3 is given twice"):
        sampler.sample(typed, np.array([3, 3]), workspace=workspace)
    with pytest.raises(InputError, match="seed 15 is not in the graph"):
        sampler.sample(typed, np.array([15]), workspace=workspace)
    with pytest.raises(InputError, match="kernel is 'warp': the schedules are"):
        sampler.sample(typed, np.array([3]), workspace=on_cuda("warp"))
