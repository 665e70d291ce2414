"""LaborSampler with edge weights: each edge has the paper's probability, and sums are unbiased."""

import numpy as np
import pytest
from cases.mistakes import refused
from reference import labor as reference
from reference.neighbor import words
from scipy.stats import chi2

import hoptrain.samplers.nodewise.labor as labor
from hoptrain.engine import Graph
from hoptrain.samplers import LaborSampler, Workspace

DESTINATIONS = np.arange(6)


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def graph(request):
    """Return six destinations with up to 25 in-edges, some parallel, with weights over four orders of magnitude; one column is all 0, one empty."""
    generator = np.random.default_rng(3)
    degrees = [25, 12, 7, 3, 5, 0]
    src, dst = np.concatenate([generator.integers(6, 30, d) for d in degrees]), np.repeat(np.arange(6), degrees)
    weights = 10 ** generator.uniform(-2, 2, len(src)) * (generator.random(len(src)) < 0.8)
    weights[dst == 4] = 0
    return Graph.from_edges(src, dst, 30, weights=weights.astype(request.param))


def columns_of(graph, destinations):
    return [[(int(graph.indices[e]), e) for e in range(graph.indptr[v], graph.indptr[v + 1])] for v in destinations]


@pytest.mark.parametrize("words_ahead", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("fanout", [1, 4, 7, 100, -1])
def test_edges_are_those_of_the_slow_reference(graph, fanout, rounds, words_ahead, monkeypatch):
    monkeypatch.setattr(labor, "EDGES_PER_WORD", 0 if words_ahead else 1 << 20)
    monkeypatch.setattr(labor, "MIN_CAPACITY", 1)
    wanted = graph.num_edges if fanout < 0 else fanout
    distribution = reference.weighted_probabilities(
        columns_of(graph, DESTINATIONS), graph.weights.astype(float), wanted, 0 if fanout < 0 else rounds
    )
    probabilities = {e: p for column in distribution for e, p in column.items()}
    scratch = Workspace()
    for number in range(40):
        block = LaborSampler([fanout], rounds, weighted=True).sample(graph, DESTINATIONS, seed=5, batch=number, workspace=scratch).blocks[0]
        drawn = {u: (words((5, 0, number, 0), u, 1)[0] + 0.5) / 2**32 for u in set(graph.indices.tolist())}
        assert all(abs(drawn[int(graph.indices[e])] - p) > 1e-6 for e, p in probabilities.items() if p < 1), "none is on the border"
        kept = [e for e, p in probabilities.items() if drawn[int(graph.indices[e])] < p]
        assert block.edge_ids.tolist() == sorted(kept)
        inverse = graph.weights[block.edge_ids] / [probabilities[e] for e in block.edge_ids.tolist()]
        np.testing.assert_allclose(block.weights, inverse, rtol=1e-4)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_edges_are_kept_with_their_probabilities(graph, rounds):
    """Edges are kept with their probabilities, by a chi-square test over one edge per source; edges of a source share a random number."""
    batches, scratch = 3000, Workspace()
    distribution = reference.weighted_probabilities(columns_of(graph, DESTINATIONS), graph.weights.astype(float), 4, rounds)
    of_source = {int(graph.indices[e]): (e, p) for column in distribution for e, p in column.items() if 0.003 < p < 0.997}
    edges, p = (np.array(each) for each in zip(*of_source.values(), strict=True))
    counts = np.zeros(graph.num_edges)
    for number in range(batches):
        block = LaborSampler([4], rounds, weighted=True).sample(graph, DESTINATIONS, seed=1, batch=number, workspace=scratch).blocks[0]
        counts[block.edge_ids] += 1
    statistic = ((counts[edges] - batches * p) ** 2 / (batches * p * (1 - p))).sum()
    assert chi2.sf(statistic, len(edges)) > 1e-4


@pytest.mark.parametrize("rounds", [0, 1])
def test_weighted_sums_are_unbiased(graph, rounds):
    batches, scratch = 6000, Workspace()
    estimates = np.zeros((batches, 6))
    for number in range(batches):
        block = LaborSampler([4], rounds, weighted=True).sample(graph, DESTINATIONS, seed=2, batch=number, workspace=scratch).blocks[0]
        np.add.at(estimates[number], np.repeat(np.arange(6), np.diff(block.indptr)), block.weights)
    exact = np.bincount(graph.destinations(), graph.weights, minlength=6)[:6]
    error = estimates.std(0) / np.sqrt(batches) + 1e-6 * exact
    assert (np.abs(estimates.mean(0) - exact) <= 4 * error).all()


def test_equal_weights_are_no_weights(graph):
    same = Graph(graph.indptr, graph.indices, weights=np.full(graph.num_edges, 0.25))
    for rounds in (0, 2):
        for number in range(20):
            by_weight, plain = (
                LaborSampler([4], rounds, weighted=weighted).sample(same, DESTINATIONS, batch=number).blocks[0]
                for weighted in (True, False)
            )
            assert by_weight.edge_ids.tolist() == plain.edge_ids.tolist()
            np.testing.assert_allclose(by_weight.weights, 0.25 * plain.weights, rtol=1e-5)


def test_what_cannot_be(graph):
    with refused("weighted=True", "graph no weights", "Graph.from_edges unweighted"):
        LaborSampler([2], weighted=True).sample(Graph(graph.indptr, graph.indices), DESTINATIONS)
    with refused("weighted=True", "LaborSampler no kernels CUDA", "cpu leave weighted out"):
        LaborSampler([2], weighted=True).sample(graph, DESTINATIONS, device="cuda")
