"""Ripple walks give the same batches on CUDA as on the CPU."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import needs_cuda
from work_cuda_case import check_bulk_of_16, check_bulks

from hoptrain.samplers import RippleWalkSampler

pytestmark = needs_cuda
ONE = np.array([0])


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 120)


@pytest.mark.parametrize(("size", "ratio", "split"), [(9, 0.4, [1, 2, 30]), (40, 1, [0, 39]), (5, 0.01, range(40))])
def test_equal_to_the_cpu(small, size, ratio, split):
    """Batches equal the CPU's, also if a walk has reached all nodes that it can and draws further roots without success."""
    sampler = RippleWalkSampler(size, ratio).prepare(small, np.array(split))
    check_bulks(sampler, small, [[ONE], [ONE] * 2])


def test_a_bulk_of_16(small):
    check_bulk_of_16(RippleWalkSampler(3).prepare(small, np.arange(9)), small, [ONE])
