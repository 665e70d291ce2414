"""The layer-wise samplers give the same batches on CUDA as on the CPU, including weights and extra arrays."""

import threading
from collections import Counter

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import TESTED, needs_cuda, simulated
from work_cuda_case import check_bulk_of_16, check_bulks, check_loader, start_with_capacity_1, workspace

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.layerwise import layers as kernels
from hoptrain.kernels.shared.importance import LONG, PIECES
from hoptrain.samplers import ASGCNSampler, FastGCNSampler, LadiesSampler

pytestmark = needs_cuda
SAMPLERS = {
    "fastgcn": FastGCNSampler([6, 3]), "ladies": LadiesSampler([5, 4]), "ladies-gcn": LadiesSampler([6], "gcn", normalize=True),
    "asgcn": ASGCNSampler([3, 5]),
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 200)


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_to_the_cpu(small, name):
    """Batches of several sizes equal the CPU's, also with a last seed that has no in-edges and so no candidates."""
    check_bulks(SAMPLERS[name], small, [[[3, 0, 35], [38]], [[5]]])


@pytest.mark.parametrize("sampler", [FastGCNSampler([2]), LadiesSampler([2]), ASGCNSampler([2])])
def test_a_bulk_of_16(small, sampler):
    check_bulk_of_16(sampler, small, [[i] for i in range(16)])


def test_too_small_capacities(small, monkeypatch):
    start_with_capacity_1(monkeypatch)
    check_bulks(LadiesSampler([4]), small, [[[0, 2]]])


def test_through_the_loader(small):
    check_loader(small, ASGCNSampler([3]), 3)


def test_scores(small):
    sampler, space = ASGCNSampler([7]), workspace()
    for scores in (None, np.arange(40) / 7):
        sampler.set_scores(scores)
        check_bulks(sampler, small, [[[0, 2]]], space)
    sampler.set_scores(np.ones(3))
    with refused("3 scores", "graph 40 nodes set_scores", "one each"):
        sampler.sample(small, np.array([1]), workspace=space)


def test_wrong_use(small):
    with refused("seed 3", "given twice", "numpy.unique(seeds)"):
        LadiesSampler([2]).sample(small, np.array([3, 5, 3]), workspace=workspace())


DEGREE = 3 * LONG // 2


def with_hub():
    """Return a graph in which node 0 has more in-edges than one thread adds up, and each of the 59 other nodes has three in-edges."""
    indptr = np.concatenate([[0], DEGREE + 3 * np.arange(60)])
    return Graph(indptr, np.random.default_rng(0).integers(0, 60, indptr[-1]).astype(np.int32))


def test_a_long_column_is_normalized():
    check_bulks(LadiesSampler([90], normalize=True), with_hub(), [[[0], [7, 0]]])
    (block,) = LadiesSampler([90], normalize=True).sample(with_hub(), np.array([0])).blocks
    column = block.weights
    assert len(column) > LONG
    assert len(np.unique(column)) > 2
    np.testing.assert_allclose(column.sum(dtype=np.float64), DEGREE, rtol=1e-6)


@simulated
def test_the_sum_of_a_long_column_is_shared(monkeypatch):
    calls, plus = Counter(), kernels.plus

    def counting(*args):
        calls[threading.current_thread()] += 1
        return plus(*args)

    monkeypatch.setattr(kernels, "plus", counting)
    sampler, graph, space = LadiesSampler([90], normalize=True), with_hub(), workspace()
    check_bulks(sampler, graph, [[[0]]], space)
    calls.clear()  # the first bulk allocated the buffers
    check_bulks(sampler, graph, [[[0]]], space)
    pieces, edges = -(-PIECES // TESTED.block), -(-DEGREE // PIECES)
    assert PIECES - 1 < max(calls.values()) <= pieces * edges + PIECES < LONG
