"""Probabilities of vertices: exact ones beside an enumeration and beside counts, counted ones beside exact ones."""

from itertools import combinations, product

import numpy as np
import pytest

from hoptrain.engine import Graph, InputError
from hoptrain.samplers import LadiesSampler, NeighborSampler, TemporalSampler, sampling_probabilities

SEEDS = np.array([0, 3, 5])


@pytest.fixture(scope="module")
def graph():
    """12 vertices with parallel edges and self loops; seed 5 has no in-edges."""
    generator = np.random.default_rng(4)
    src, dst = generator.integers(0, 12, 30), generator.integers(0, 5, 30)
    return Graph.from_edges(src, dst, 12, weights=generator.random(30), times=generator.integers(0, 9, 30))


def enumerated(graph, fanout, replace):
    """Over all equally likely choices of each seed."""
    kept = np.ones(12)
    for v in SEEDS:
        column = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
        choices = list(product(column, repeat=fanout if column else 0)) if replace else list(combinations(column, min(fanout, len(column))))
        for u in range(12):
            kept[u] *= 1 - np.mean([u in choice for choice in choices])
    kept[SEEDS] = 0
    return 1 - kept


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 2, 4])
def test_one_hop_is_exact(graph, fanout, replace):
    found = sampling_probabilities(NeighborSampler([fanout], replace=replace), graph, SEEDS)
    np.testing.assert_allclose(found, enumerated(graph, fanout, replace), atol=1e-12)


def test_all_edges_reach_all_sources(graph):
    found = sampling_probabilities(NeighborSampler([-1]), graph, SEEDS)
    assert set(np.flatnonzero(found).tolist()) == set(NeighborSampler([-1]).sample(graph, SEEDS).node_ids.tolist())
    assert set(found.tolist()) == {0.0, 1.0}


class Counted(NeighborSampler):
    """The same law, by counting."""


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


def test_what_cannot_be(graph):
    with pytest.raises(InputError, match="num_batches is 0: probabilities are counted over one or more"):
        sampling_probabilities(NeighborSampler([2, 2]), graph, SEEDS, num_batches=0)
    with pytest.raises(InputError, match="seed 12 is not in the graph"):
        sampling_probabilities(NeighborSampler([2]), graph, np.array([12]))
