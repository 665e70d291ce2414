"""GraphSAINT: the distributions of its draws, and the quantities that its weights estimate."""

import numpy as np
import pytest

import hoptrain.samplers.buffers.workspace as workspace
import hoptrain.samplers.subgraphs.saint as saint
from hoptrain.engine import Graph
from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler

ONE = np.array([0])


def inclusion(sampler, graph, batches):
    """Count how often each node is in a batch."""
    counts = np.zeros(graph.num_nodes)
    for batch in range(batches):
        counts[sampler.sample(graph, ONE, batch=batch).node_ids] += 1
    return counts


def skewed():
    """Return a symmetric graph of a hub, a clique and a path, with degrees from 1 to 8."""
    pairs = [(0, i) for i in range(1, 9)] + [(i, j) for i in range(9, 13) for j in range(9, i)] + [(8, 9), (12, 13), (13, 14), (14, 15)]
    src, dst = np.array(pairs).T
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


def mixed():
    """Return a symmetric graph of two cliques and a cycle, joined by bridges, in which no node is rarely sampled."""
    clique = [(i, j) for i in range(6) for j in range(i)] + [(i, j) for i in range(6, 10) for j in range(6, i)]
    src, dst = np.array(clique + [(i, 10 + (i - 9) % 6) for i in range(10, 16)] + [(5, 6), (9, 10)]).T
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


def means(graph):
    """Return the dense matrix that averages over in-edges, with entries A[v, u]."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    degrees = graph.in_degrees()
    np.add.at(matrix, (np.repeat(np.arange(graph.num_nodes), degrees), graph.indices), 1)
    return matrix / np.maximum(degrees, 1)[:, None]


def assert_rates(counts, batches, rates, slack=1.0):
    """Check each node's number of batches against the rates by a chi-square test, with p = 0.001 if nodes were independent."""
    inner = (rates > 0) & (rates < 1)
    assert (counts[rates == 0] == 0).all()
    assert (counts[rates == 1] == batches).all()
    z = (counts - batches * rates)[inner] / np.sqrt(batches * rates * (1 - rates))[inner]
    freedom = inner.sum()
    assert (z**2).sum() < slack * (freedom + 3.3 * np.sqrt(2 * freedom) + 4)


def node_rates(graph, budget):
    """Return the probability that a node is in a subgraph, and that a pair is."""
    distribution = (means(graph) ** 2).sum(0)
    distribution /= distribution.sum()
    alone, pair = (1 - distribution) ** budget, (1 - distribution[:, None] - distribution) ** budget
    return 1 - alone, 1 - alone[:, None] - alone + pair


def test_the_node_sampler_draws_by_squared_columns():
    graph, batches = skewed(), 4000
    sampler = SaintNodeSampler(5, normalise=False).prepare(graph, np.arange(16))
    counts = inclusion(sampler, graph, batches)
    assert_rates(counts, batches, node_rates(graph, 5)[0])
    with pytest.raises(AssertionError):  # a uniform distribution must fail
        assert_rates(counts, batches, np.full(16, 1 - (1 - 1 / 16) ** 5))


def test_the_edge_sampler_draws_pairs_by_inverse_degrees():
    """The edge sampler with one edge per subgraph draws a pair with a probability proportional to 1 / d(u) + 1 / d(v)."""
    graph, batches = skewed(), 6000
    degrees = graph.in_degrees()
    counts, distribution = np.zeros((16, 16)), np.zeros((16, 16))
    sampler = SaintEdgeSampler(1, normalise=False).prepare(graph, np.arange(16))
    for batch in range(batches):
        u, v = sorted(sampler.sample(graph, ONE, batch=batch).node_ids)
        counts[u, v] += 1
    dst = np.repeat(np.arange(16), degrees)
    distribution[np.minimum(graph.indices, dst), np.maximum(graph.indices, dst)] = 1 / degrees[graph.indices] + 1 / degrees[dst]
    uniform = (distribution > 0) / (distribution > 0).sum()
    assert_rates(counts, batches, distribution / distribution.sum())
    with pytest.raises(AssertionError):
        assert_rates(counts, batches, uniform)


def test_the_walk_sampler_visits_by_the_transition_matrix():
    """Visits of the walk sampler have the rates of the transition matrix, with one walk of three steps on a directed graph."""
    graph = Graph.from_edges([1, 2, 3, 3, 4, 5, 5, 6, 0], [0, 0, 1, 2, 3, 3, 3, 4, 4], 8)
    roots, batches = np.array([0, 3, 7]), 5000
    sampler = SaintWalkSampler(1, 3, normalise=False).prepare(graph, roots)
    step = means(graph) + np.diag(graph.in_degrees() == 0)  # a walk stays at a node without in-edges
    rates = np.zeros(8)
    for v in range(8):  # the probability of a visit: 1 minus that of three steps that avoid v
        avoiding = step * (np.arange(8) != v)[:, None] * (np.arange(8) != v)
        start = np.isin(np.arange(8), roots) * (np.arange(8) != v) / 3
        rates[v] = 1 - (start @ np.linalg.matrix_power(avoiding, 3)).sum()
    counts = inclusion(sampler, graph, batches)
    assert_rates(counts, batches, rates)
    with pytest.raises(AssertionError):  # walks along the edges must fail
        assert_rates(counts, batches, rates[::-1])


# Estimates by the weights


def sums(sampler, graph, split, batches, seed=0):
    """Return the ratios of weighted sums and mean losses over many batches to the exact ones.

    Returns each node's ratio, the number of batches with the node, and the losses' ratios (batches,). Features and losses are not constant.
    """
    num_nodes, scratch = graph.num_nodes, workspace.Workspace()
    x, losses = 1 + np.arange(num_nodes) % 7 / 7, 1 + np.arange(num_nodes) % 5
    exact = np.bincount(np.repeat(np.arange(num_nodes), graph.in_degrees()), x[graph.indices], num_nodes)
    total, times, ratios = np.zeros(num_nodes), np.zeros(num_nodes), np.zeros(batches)
    for i in range(batches):
        batch = sampler.sample(graph, ONE, seed=seed, batch=i, workspace=scratch)
        block, nodes = batch.blocks[0], batch.node_ids
        owner = np.repeat(np.arange(len(nodes)), np.diff(block.indptr))
        total[nodes] += np.bincount(owner, block.weights * x[nodes[block.indices]], len(nodes))
        times[nodes] += 1
        ratios[i] = (batch.seed_weights * losses[batch.seeds]).mean() / losses[split].mean()
    return total / np.maximum(times, 1) / exact, times, ratios


def powerlaw(num_nodes=1200):
    """Return a symmetric graph in which the node of rank r has about 600 / r edges, plus two to the adjacent ranks."""
    v = np.arange(num_nodes)
    src = np.repeat(v, 1 + 600 // (v + 1))
    dst = (src + 1 + np.arange(len(src)) * 7919 % (num_nodes - 1)) % num_nodes
    src, dst = np.r_[src, v], np.r_[dst, (v + 1) % num_nodes]
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


@pytest.mark.parametrize("sampler", [SaintNodeSampler(66), SaintEdgeSampler(35), SaintWalkSampler(24)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("every", [1, 3])
def test_sums_over_five_percent_of_the_nodes(sampler, every):
    """Averaged over all sampled nodes, the mean aggregation and the mean loss are within 1 % of the exact values."""
    graph = powerlaw()
    split = np.arange(0, graph.num_nodes, every)
    ratio, times, losses = sums(sampler.prepare(graph, split), graph, split, 4000)
    assert 0.03 < times.sum() / 4000 / graph.num_nodes < 0.06
    assert abs(np.average(ratio, weights=times) - 1) < 0.01
    assert abs(losses.mean() - 1) < 0.01
    assert losses.std() / np.sqrt(len(losses)) < 0.005  # so that the bound is meaningful


def z_values(rows):
    """Return the z-values of the column means of independent rows."""
    return rows.mean(0) / (rows.std(0, ddof=1) / np.sqrt(len(rows)) + 1e-12)


@pytest.mark.parametrize("sampler", [SaintNodeSampler(12), SaintEdgeSampler(6), SaintWalkSampler(4, 2)], ids=lambda s: type(s).__name__)
def test_weighted_sums_estimate_those_of_the_graph(sampler, monkeypatch):
    """Weighted neighbour sums A x at every sampled node, and the mean loss, are unbiased.

    Walks are recounted for each preparation, 32 from each root.
    """
    graph, preparations, batches = mixed(), 200, 8
    num_nodes, split, rng = graph.num_nodes, np.arange(0, graph.num_nodes, 2), np.random.default_rng(0)
    x, losses = 1 + rng.random(num_nodes), np.arange(num_nodes) / 4
    exact = np.zeros(num_nodes)
    np.add.at(exact, np.repeat(np.arange(num_nodes), graph.in_degrees()), x[graph.indices])
    errors, plain_errors = np.zeros((2, preparations, num_nodes))
    loss_errors, plain_loss_errors = np.zeros((2, preparations, 1))
    for i in range(preparations):
        monkeypatch.setattr(saint, "HOP_PRESAMPLE", np.uint64(100 + i))  # other walks each time
        prepared = sampler.prepare(graph, split)
        for j in range(batches):
            batch = prepared.sample(graph, ONE, seed=i, batch=j)
            block, nodes = batch.blocks[0], batch.node_ids
            owner = np.repeat(np.arange(len(nodes)), np.diff(block.indptr))
            for of, weights in ((errors, block.weights), (plain_errors, np.ones(block.num_edges))):
                of[i, nodes] += np.bincount(owner, weights * x[nodes[block.indices]], len(nodes)) - exact[nodes]
            loss_errors[i] += (batch.seed_weights * losses[batch.seeds]).mean() - losses[split].mean()
            plain_loss_errors[i] += losses[batch.seeds].mean() - losses[split].mean()
    assert abs(z_values(errors)).max() < 3.6  # 16 nodes, p = 0.005
    assert abs(z_values(loss_errors)).max() < 3.3
    assert abs(z_values(plain_errors)).max() > 10
    if isinstance(sampler, SaintNodeSampler):  # the other samplers' distributions are nearly uniform here
        assert abs(z_values(plain_loss_errors)).max() > 5


def test_half_the_error_takes_more_walks(monkeypatch):
    graph, walks, counted = powerlaw(300), [], saint.visits.walk_rates
    monkeypatch.setattr(saint.visits, "walk_rates", lambda number, *args: walks.append(number) or counted(number, *args))
    last = []
    for error in (0.1, 0.05, 0.05):
        SaintWalkSampler(8, error=error).prepare(graph, np.arange(300))
        last.append(walks[-1] / 300)
    assert last[0] >= 32
    assert last[1] >= 2 * last[0]
    assert last[1] == last[2]


# Batches, epochs, options


def test_a_subgraph_without_a_seed_is_drawn_again():
    """A subgraph without a seed is drawn again: every batch contains node 15, the only seed, although it is rarely drawn."""
    graph = skewed()
    sampler = SaintNodeSampler(2).prepare(graph, np.array([15]))
    for batch in range(50):
        sampled = sampler.sample(graph, ONE, batch=batch)
        assert (sampled.seeds.tolist(), sampled.seed_weights.tolist()) == ([15], [1.0])
    assert sampler.num_items == 1
