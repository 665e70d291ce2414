"""Minimal variance sampling on CUDA, with neighbourhoods: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.samplers import MVSSampler, NeighborSampler

pytestmark = needs_cuda


def test_equal_to_the_cpu():
    graph, rng = make_graph(40, 240), np.random.default_rng(0)
    sampler = MVSSampler(NeighborSampler([2, 2]), 3).prepare(graph, np.arange(40))
    sampler.update(np.arange(40), rng.random(40))
    check_equal(sampler, graph, [rng.permutation(40)[:n] for n in (9, 5, 1)], on_cuda())


def test_a_bulk_of_16():
    graph, rng = make_graph(40, 240), np.random.default_rng(0)
    sampler = MVSSampler(NeighborSampler([1]), 1).prepare(graph, np.arange(40))
    check_equal(sampler, graph, [rng.permutation(40)[:2] for _ in range(16)], on_cuda())
