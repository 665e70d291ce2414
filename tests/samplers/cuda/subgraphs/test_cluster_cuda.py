"""Cluster-GCN's sampler gives the same batches on CUDA as on the CPU."""

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import needs_cuda
from work_cuda_case import check_bulk_of_16, check_bulks, workspace

from hoptrain.samplers import ClusterSampler

pytestmark = needs_cuda
SPLIT = np.array([1, 2, 30])


@pytest.fixture(scope="module")
def prepared():
    pytest.importorskip("pymetis")
    graph = make_graph(40, 200)
    return graph, ClusterSampler(6, num_layers=2).prepare(graph, SPLIT)


def test_equal_to_the_cpu(prepared):
    graph, sampler = prepared
    units = sampler.items(graph, SPLIT)
    check_bulks(sampler, graph, [[units[:2], np.arange(6)], [units[:1]] * 3])


def test_a_bulk_of_16(prepared):
    graph, sampler = prepared
    check_bulk_of_16(sampler, graph, [sampler.items(graph, SPLIT)[:1]])


def test_clusters_without_a_seed(prepared):
    graph, sampler = prepared
    without = np.setdiff1d(np.arange(6), sampler.items(graph, SPLIT))[:1]
    with refused(f"[{without[0]}]", "clusters none nodes train", "sampler.items(graph, seeds)"):
        sampler.sample_bulk(graph, [np.arange(3), without], workspace=workspace())
    with refused("cluster 6", "not exist", "0 5"):
        sampler.sample(graph, np.array([6]), workspace=workspace())
