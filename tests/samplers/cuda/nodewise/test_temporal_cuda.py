"""Temporal neighbour sampling on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import needs_cuda, to_host  # noqa: F401
from nodewise_cuda_case import check_equal, contents, on_cuda

from hoptrain.engine import Graph
from hoptrain.samplers import TemporalSampler

pytestmark = needs_cuda


@pytest.fixture(scope="module")
def timed():
    plain = make_graph(40, 240)
    return Graph(plain.indptr, plain.indices, times=np.random.default_rng(3).integers(0, 100, plain.num_edges))


@pytest.fixture(scope="module")
def seed_times():
    return np.random.default_rng(4).integers(0, 120, 40)


@pytest.mark.parametrize(
    ("options", "kernel"), [({}, "sample"), ({}, "transit"), ({"replace": True}, "sample"), ({"strategy": "recent"}, "transit")], ids=str
)
def test_equal_to_the_cpu(timed, seed_times, options, kernel):
    sampler, workspace = TemporalSampler([3, 2], seed_times, **options), on_cuda(kernel)
    for bulk in ([[1, 5, 1], [39, 0]], [[2]]):
        check_equal(sampler, timed, [np.array(seeds) for seeds in bulk], workspace)
    assert {name for name in ("table.words", "table.keys") if name in workspace.on_device.driver.buffers} == {"table.words"}


def test_all_edges_of_the_past_and_a_bulk_of_16(timed, seed_times):
    check_equal(TemporalSampler([2, -1], seed_times), timed, [np.array([v]) for v in range(16)], on_cuda())


def test_times_that_are_given(timed):
    sampler, seeds, times = TemporalSampler([3]), np.array([0, 0]), np.array([20, 90])
    found = sampler.sample(timed, seeds, times=times, batch=5, workspace=on_cuda())
    assert contents(found) == contents(sampler.sample(timed, seeds, times=times, batch=5))
    with refused("times", "seeds no", "TemporalSampler seed_times"):
        sampler.sample(timed, seeds, workspace=on_cuda())
