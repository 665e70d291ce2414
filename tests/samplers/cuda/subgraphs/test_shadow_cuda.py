"""ShaDow gives the same batches on CUDA as on the CPU."""

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import needs_cuda
from work_cuda_case import check_bulk_of_16, check_bulks, check_loader, start_with_capacity_1, workspace

from hoptrain.samplers import ShadowPPRSampler, ShadowSampler

pytestmark = needs_cuda


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 200)


@pytest.mark.parametrize("sampler", [ShadowSampler(2, 2, num_layers=1), ShadowPPRSampler(4, alpha=0.4, epsilon=0.02, num_layers=2)])
def test_equal_to_the_cpu(small, sampler):
    check_bulks(sampler, small, [[[3, 0, 35]], [[5], [1, 2]]])


@pytest.mark.parametrize("sampler", [ShadowSampler(2, 2), ShadowPPRSampler(4, alpha=0.4, epsilon=0.02)])
def test_sizes_of_subgraphs(small, sampler):
    seeds = [np.array([3, 0, 35]), np.array([5])]
    bulks = [sampler.sample_bulk(small, seeds, workspace=own) for own in (workspace(), None)]
    found, expected = ([batch.subgraph_sizes for batch in bulk] for bulk in bulks)
    assert found == expected
    assert [len(sizes) for sizes in expected] == [3, 1]
    assert sum(map(sum, expected)) > 0


def test_a_bulk_of_16(small, monkeypatch):
    start_with_capacity_1(monkeypatch)
    check_bulk_of_16(ShadowSampler(1, 2), small, [[i] for i in range(16)])
    check_bulk_of_16(ShadowPPRSampler(2, alpha=0.5, epsilon=0.1), small, [[i] for i in range(16)])


def test_through_the_loader(small):
    check_loader(small, ShadowSampler(1, 2), 3)


def test_wrong_use(small):
    with refused("seed 3", "given twice", "numpy.unique(seeds)"):
        ShadowSampler().sample(small, np.array([3, 5, 3]), workspace=workspace())
