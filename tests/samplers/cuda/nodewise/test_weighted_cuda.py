"""Weighted draws without replacement on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.engine import Graph
from hoptrain.kernels.shared.weighted import weight_share
from hoptrain.samplers import NeighborSampler

pytestmark = needs_cuda


def weighted(weights_of, num_nodes=40, num_edges=240, dtype=np.float32):
    """Return a graph with hubs, isolated nodes, parallel edges, and columns whose weights are all 0."""
    plain = make_graph(num_nodes, num_edges)
    weights = weights_of(np.random.default_rng(0), num_edges).astype(dtype)
    weights[plain.indptr[3] : plain.indptr[6]] = 0
    return Graph(plain.indptr, plain.indices, weights=weights)


def even(rng, number):
    return rng.integers(0, 4, number)


def steep(rng, number):
    """Return weights of which a few dominate, so that draws repeat very often; some are below the smallest normal float32."""
    return 10.0 ** -rng.integers(0, 320, number)


@pytest.mark.parametrize(
    ("weights", "dtype", "expand", "kernel"),
    [
        (even, np.float32, "all", "sample"),
        (even, np.float64, "new", "transit"),
        (steep, np.float32, "new", "sample"),
        (steep, np.float64, "all", "transit"),
    ],
)
def test_equal_to_the_cpu(weights, dtype, expand, kernel):
    graph, workspace = weighted(weights, dtype=dtype), on_cuda(kernel)
    sampler = NeighborSampler([3, 2], weighted=True, expand=expand)
    for sizes in ([3, 1, 4], [2]):
        check_equal(sampler, graph, [np.random.default_rng(n).permutation(40)[:n] for n in sizes], workspace)


def test_a_bulk_of_16_and_all_edges_with_weight():
    check_equal(NeighborSampler([2, -1], weighted=True), weighted(even), [np.array([v]) for v in range(16)], on_cuda())


@pytest.mark.parametrize(("expand", "kernel"), [("all", "sample"), ("new", "transit")])
def test_all_edges_beside_draws_with_replacement(expand, kernel):
    graph, sampler = weighted(even), NeighborSampler([2, -1, 2], replace=True, weighted=True, expand=expand)
    for batch in check_equal(sampler, graph, [np.arange(4), np.arange(9)], on_cuda(kernel)):
        assert all(graph.weights[block.edge_ids].all() for block in batch.blocks)


def test_shares_are_those_of_doubles():
    rng = np.random.default_rng(1)
    doubles = np.concatenate([10.0 ** rng.uniform(-320, 300, 300), 1 - rng.random(300) * 2.0**-45, [5e-324, 1e-310, 1.0]])
    numbers = np.concatenate([doubles, rng.random(300), rng.random(300, np.float32)])
    for _ in range(2000):
        weight, largest = np.sort(rng.choice(numbers, 2))
        if largest > 0:
            expected = np.uint64(weight / largest * 2.0**31)
            assert weight_share(np.float64(weight).view(np.uint64), np.float64(largest).view(np.uint64)) == expected, (weight, largest)
