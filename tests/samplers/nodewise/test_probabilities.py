"""Inclusion probabilities of nodes: exact values equal an enumeration, and estimated ones approximate them."""

from itertools import combinations, product

import numpy as np
import pytest
from cases.mistakes import refused
from reference.hetero_data import hetero_graph
from reference.neighbor import wanted

from hoptrain.engine import Graph
from hoptrain.samplers import HeteroSampler, LadiesSampler, NeighborSampler, TemporalSampler, sampling_probabilities

SEEDS = np.array([0, 3, 5])


@pytest.fixture(scope="module")
def graph():
    """Return 12 nodes with parallel edges and self loops; seed 5 has no in-edges."""
    generator = np.random.default_rng(4)
    src, dst = generator.integers(0, 12, 30), generator.integers(0, 5, 30)
    return Graph.from_edges(src, dst, 12, weights=generator.random(30), times=generator.integers(0, 9, 30))


def enumerated(graph, fanout, replace):
    """Compute the inclusion probabilities from all equally likely choices of each seed."""
    kept = np.ones(12)
    for v in SEEDS:
        column = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
        number = wanted(len(column), fanout)
        choices = list(product(column, repeat=number if column else 0)) if replace else list(combinations(column, min(number, len(column))))
        for u in range(12):
            kept[u] *= 1 - np.mean([u in choice for choice in choices])
    kept[SEEDS] = 0
    return 1 - kept


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 2, 4, 0.5])
def test_one_hop_is_exact(graph, fanout, replace):
    found = sampling_probabilities(NeighborSampler([fanout], replace=replace), graph, SEEDS)
    np.testing.assert_allclose(found, enumerated(graph, fanout, replace), atol=1e-12)


def test_all_edges_reach_all_sources(graph):
    found = sampling_probabilities(NeighborSampler([-1]), graph, SEEDS)
    assert set(np.flatnonzero(found).tolist()) == set(NeighborSampler([-1]).sample(graph, SEEDS).node_ids.tolist())
    assert set(found.tolist()) == {0.0, 1.0}


class Counted(NeighborSampler):
    """A sampler with the same distribution that overrides ``sample_on_cpu``, so probabilities must be estimated from batches."""

    def sample_on_cpu(self, graph, seeds, address, workspace):
        return super().sample_on_cpu(graph, seeds, address, workspace)


SAMPLERS = {
    "one hop": Counted([2]),
    "weights": NeighborSampler([2], weighted=True),
    "two hops": NeighborSampler([2, 2]),
    "layers": LadiesSampler([3]),
    "trees": TemporalSampler([2, 2], np.full(12, 5)),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_others_are_counted(graph, sampler):
    found = sampling_probabilities(sampler, graph, SEEDS, num_batches=400, seed=3)
    batches = [sampler.sample(graph, SEEDS, seed=3, batch=number).node_ids for number in range(400)]
    np.testing.assert_array_equal(found, [np.mean([u in batch for batch in batches]) for u in range(12)])
    assert (found[SEEDS] == 1).all()
    if isinstance(sampler, Counted):
        exact = enumerated(graph, 2, False)
        assert (np.abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / 400)).all()


@pytest.mark.parametrize("seeds", [np.arange(4), {"paper": np.arange(4), "author": np.array([7])}], ids=["one type", "several"])
def test_each_type_of_a_heterogeneous_graph_has_its_own(seeds):
    graph, kind = hetero_graph(), "paper" if isinstance(seeds, np.ndarray) else None
    sampler = HeteroSampler([2, 2], kind)
    found = sampling_probabilities(sampler, graph, seeds, num_batches=100, seed=3)
    batches = [sampler.sample(graph, seeds, seed=3, batch=number).node_ids for number in range(100)]
    assert found.keys() == graph.num_nodes.keys()
    for name, number in graph.num_nodes.items():
        np.testing.assert_array_equal(found[name], [np.mean([u in batch[name] for batch in batches]) for u in range(number)])
    assert (found["paper"][:4] == 1).all()
    assert 0 < found["author"].max() <= 1


def test_what_cannot_be(graph):
    for sampler in (NeighborSampler([2, 2]), NeighborSampler([2])):
        with refused("0", "num_batches probabilities counted one more"):
            sampling_probabilities(sampler, graph, SEEDS, num_batches=0)
    with refused("seed 12", "not graph", "0 11"):
        sampling_probabilities(NeighborSampler([2]), graph, np.array([12]))
