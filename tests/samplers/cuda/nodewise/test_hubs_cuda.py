"""Long columns are sampled by a whole block: batches are bit-identical to the CPU's, and no thread reads the whole column."""

import threading
from collections import Counter

import numpy as np
import pytest
from cuda_case import TESTED, needs_cuda, simulated
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.nodewise import importance, weighted
from hoptrain.kernels.shared.importance import LONG, PIECES
from hoptrain.samplers import LaborSampler, NeighborSampler

pytestmark = needs_cuda


def with_hub(degree, weights=None):
    """Return a graph in which node 0 has the in-degree ``degree``, and the 59 other nodes have in-degree three."""
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], degree + 3 * np.arange(60)])
    return Graph(indptr, rng.integers(0, 60, indptr[-1]).astype(np.int32), weights=weights and weights(rng, indptr[-1]))


def steep(rng, number):
    """Return weights of which one dominates, so that draws must exclude it to reach the others; every fourth weight is 0."""
    weights = 10.0 ** -rng.integers(20, 320, number)
    weights[::4], weights[1] = 0.0, 1.0
    return weights


def counted(monkeypatch, module, name):
    """Return a counter of the calls of a function by each thread; the simulator runs each CUDA thread as a Python thread."""
    calls, function = Counter(), getattr(module, name)

    def counting(*args):
        calls[threading.current_thread()] += 1
        return function(*args)

    monkeypatch.setattr(module, name, counting)
    return calls


def longest_sum(degree, block):
    """Return the length of the longest chain of additions for a column: the pieces of one thread, then the sums of all pieces."""
    return -(-PIECES // block) * -(-degree // PIECES) + PIECES


def test_a_million_edges_are_a_path_of_thousands():
    assert longest_sum(10**6, 256) == 4163


def test_labor():
    (batch,) = check_equal(LaborSampler([5], importance_rounds=1), with_hub(LONG + 60), [np.array([0, 7])], on_cuda())
    assert batch.blocks[0].indptr[1] > 0


@simulated
def test_the_sum_of_labor_is_shared(monkeypatch):
    calls = counted(monkeypatch, importance, "total")
    degree = LONG + 60
    check_equal(LaborSampler([5], importance_rounds=1), with_hub(degree), [np.array([0])], on_cuda())
    longest = max(calls.values())  # two sums; a single thread would have made twice the degree
    assert longest_sum(degree, TESTED.block) < longest <= 2 * longest_sum(degree, TESTED.block) < 2 * degree


@pytest.mark.parametrize(("fanout", "kernel"), [(-1, "sample"), (-1, "transit"), (6, "sample")])
def test_by_weight(fanout, kernel):
    graph = with_hub(2 * weighted.LONG + 7, steep)
    (batch,) = check_equal(NeighborSampler([fanout], weighted=True), graph, [np.array([7, 0])], on_cuda(kernel))
    assert batch.blocks[0].indptr[2] - batch.blocks[0].indptr[1] == (
        6 if fanout > 0 else np.count_nonzero(graph.weights[: graph.indptr[1]])
    )


@simulated
def test_draws_by_weight_are_shared(monkeypatch):
    calls = counted(monkeypatch, weighted, "weight_share")
    degree = 2 * weighted.LONG + 7
    check_equal(NeighborSampler([3], weighted=True), with_hub(degree, steep), [np.array([0])], on_cuda())
    draws, piece = 2, -(-degree // TESTED.block)
    assert draws * (piece - 1) <= max(calls.values()) <= draws * 2 * piece  # once to add up, and once to find the edge
