"""Subgraphs with the distributions of DGL and PyG: single draws, all edges between the nodes, and no weights."""

import numpy as np
import pytest
from cases.mistakes import refused
from scipy.stats import chisquare

from hoptrain.engine import Graph
from hoptrain.samplers.subgraphs.unweighted import ByDegrees, ByOutDegree, BySources, BySumOfDegrees, Walks

DRAWS = 4000
ALL = np.arange(30)


@pytest.fixture(scope="module")
def graph():
    """Return 30 nodes with parallel edges and self loops; the last three have no in-edges, the first two no out-edges."""
    generator = np.random.default_rng(8)
    return Graph.from_edges(generator.integers(2, 30, 200), generator.integers(0, 27, 200), 30)


def drawn(sampler, graph):
    """Return the nodes of many subgraphs."""
    sampler = sampler.prepare(graph, ALL)
    for batch in range(DRAWS):
        made = sampler.sample(graph, np.zeros(1, np.int64), seed=5, batch=batch)
        assert made.seed_weights is None
        assert made.blocks[0].weights is None
        yield made


def fits(counts, distribution):
    assert (counts[distribution == 0] == 0).all()
    return chisquare(counts[distribution > 0], distribution[distribution > 0] * counts.sum() / distribution.sum()).pvalue >= 1e-4


@pytest.mark.parametrize(("kind", "least"), [(ByOutDegree, 1), (BySources, 0)])
def test_nodes_by_out_degree(graph, kind, least):
    counts = np.zeros(30)
    for batch in drawn(kind(1, normalise=False, num_subgraphs=1), graph):
        counts[batch.node_ids] += 1
    assert fits(counts, np.maximum(np.bincount(graph.indices, minlength=30), least))


@pytest.mark.parametrize("kind", [ByDegrees, BySumOfDegrees])
def test_edges_by_both_degrees(graph, kind):
    src, dst = graph.indices, graph.destinations()
    distribution, counts = np.zeros((30, 30)), np.zeros((30, 30))
    into, out_of = np.bincount(dst, minlength=30), np.bincount(src, minlength=30)
    each = 1 / into[dst] + 1 / out_of[src] if kind is ByDegrees else into[src] + out_of[dst]
    np.add.at(distribution, (np.minimum(src, dst), np.maximum(src, dst)), each)
    for batch in drawn(kind(1, normalise=False, num_subgraphs=1), graph):
        counts[batch.node_ids.min(), batch.node_ids.max()] += 1
    assert fits(counts, distribution)


def test_walks_from_any_node(graph):
    """Walks may start at any node, and a walk from a node without in-edges stays there."""
    counts = np.zeros(30)
    for batch in drawn(Walks(1, 1, normalise=False, num_subgraphs=1), graph):
        assert len(batch.node_ids) <= 2
        counts[batch.node_ids[0] if len(batch.node_ids) == 1 else 0] += len(batch.node_ids) == 1
    assert (counts[27:] > 0).all()


def test_a_subgraph_has_all_edges_between_its_nodes(graph):
    batch = ByDegrees(9, normalise=False, num_subgraphs=1).prepare(graph, ALL).sample(graph, np.zeros(1, np.int64))
    inside = np.isin(graph.indices, batch.node_ids) & np.isin(graph.destinations(), batch.node_ids)
    assert sorted(batch.blocks[0].edge_ids.tolist()) == np.flatnonzero(inside).tolist()


def test_what_would_take_too_much_is_refused(graph, monkeypatch):
    monkeypatch.setattr("hoptrain.samplers.subgraphs.unweighted.MOST_EDGES", 200)
    with refused("200 edges", "graph weighted draws fewer", "walks"):
        ByDegrees(3, normalise=False, num_subgraphs=1).prepare(graph, ALL)
