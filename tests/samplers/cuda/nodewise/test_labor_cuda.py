"""LABOR-0 on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.kernels.shared import importance
from hoptrain.samplers import LaborSampler

pytestmark = needs_cuda


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 240)


@pytest.mark.parametrize(
    ("fanouts", "rounds", "kernel"), [([2, 3], 0, "sample"), ([2, -1], 0, "transit"), ([2, 3], 1, "transit"), ([3, -1], 2, "sample")]
)
def test_equal_to_the_cpu(small, fanouts, rounds, kernel):
    sampler, workspace = LaborSampler(fanouts, importance_rounds=rounds), on_cuda(kernel)
    batches = check_equal(sampler, small, [np.array(seeds) for seeds in ([0, 9, 31], [5], [3, 17])], workspace)
    assert any((block.weights > 1).any() for block in batches[0].blocks)
    check_equal(sampler, small, [np.array([2, 38])], workspace)


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_bulk_of_16(small, rounds):
    check_equal(LaborSampler([2], rounds), small, [np.array([v]) for v in range(16)], on_cuda())


def test_importances_are_those_of_doubles():
    """Each step of the importance computation equals the CPU's double precision."""
    rng = np.random.default_rng(0)

    def bits(x):
        return np.float64(x).view(np.uint64)

    for _ in range(500):
        x, y = 10 ** rng.uniform(-6, 6, 2)
        degree, fanout = (int(n) for n in np.sort(10 ** rng.uniform(0, 7, 2))[::-1])
        goal, count = float(degree + 1) * float(degree + 1) / float(fanout), int(rng.integers(0, degree + 1))
        assert importance.product(bits(x), bits(y)) == bits(x * y)
        assert importance.total(bits(x), bits(y)) == bits(x + y)
        assert importance.inverse(bits(x)) == bits(1.0 / x)
        assert importance.reaches_one(bits(x), bits(y)) == (x * y >= 1.0)
        assert importance.goal_of(degree + 1, fanout) == bits(goal)
        assert importance.next_scale(bits(x), bits(goal), count) == bits(x / (goal - count))
        assert importance.threshold_of(bits(x), bits(y)) == (2**32 if x * y >= 1 else max(1, int(x * y * 2.0**32)))
