"""GraphSAINT: the laws of its draws, what its weights estimate, and equality with a slow reference."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

import hoptrain.samplers.saint as saint
import hoptrain.samplers.workspace as workspace
from hoptrain.engine import Graph, InputError
from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler, SampleLoader

ONE = np.array([0])
PRESAMPLE = (0, 0, 4088)
"""The address of presampled subgraphs but for their number: seed, epoch and hop."""


def draws(sampler, graph, key, attempt):
    """The reference's drawn vertices for a prepared sampler."""
    columns = reference.columns_of(graph)
    if isinstance(sampler, SaintNodeSampler):
        return reference.node_draws([table.tolist() for table in sampler._tables], sampler.budget, key, attempt)
    if isinstance(sampler, SaintEdgeSampler):
        return reference.edge_draws(columns, sampler.budget, key, attempt)
    return reference.walks(columns, sampler.split.seeds.tolist(), sampler.num_roots, sampler.walk_length, key, attempt)


def members(sampler, graph, split, key):
    """The reference's vertices: those of the first attempt that meets the split."""
    for attempt in range(100):
        nodes, num_seeds = reference.seeds_first(draws(sampler, graph, key, attempt), split)
        if num_seeds:
            return nodes, num_seeds
    raise AssertionError("no seed")


def expected(sampler, graph, split, presample, address):
    """A batch with its weights, as the docstring says."""
    seed, epoch, hop = PRESAMPLE
    subgraphs = [members(sampler, graph, split, (seed, epoch, i, hop))[0] for i in range(presample)]
    of_nodes, of_edges = reference.counts(graph, subgraphs)
    nodes, num_seeds = members(sampler, graph, split, (*address, 0))
    indptr, indices, edge_ids = reference.induced(graph, nodes)
    owner = np.repeat(nodes, np.diff(indptr)).tolist()
    weights = [(of_nodes[v] + 1) / (of_edges[e] + 1) for v, e in zip(owner, edge_ids, strict=True)]
    seed_weights = [num_seeds / len(split) * (presample + 1) / (of_nodes[v] + 1) for v in nodes[:num_seeds]]
    rounded = [np.array(w, np.float32).tolist() for w in (weights, seed_weights)]
    return num_seeds, nodes, indptr, indices, edge_ids, *(rounded if presample else (None, None))


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
@settings(max_examples=15, deadline=None)
@given(graph=graphs(), budget=st.integers(1, 12), presample=st.sampled_from([0, 1, 9]), hashed=st.booleans(), data=st.data())
def test_any_graph(kind, graph, budget, presample, hashed, data):
    split = data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1))
    if kind != "walk":  # so that something can be drawn, and meet the split
        graph = Graph.from_edges(
            np.r_[graph.indices, range(graph.num_nodes)],
            np.r_[np.repeat(np.arange(graph.num_nodes), graph.in_degrees()), range(graph.num_nodes)],
        )
    length = data.draw(st.integers(1, 7))
    make = {"node": SaintNodeSampler, "edge": SaintEdgeSampler}.get(kind) or (lambda *a, **options: SaintWalkSampler(*a, length, **options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "DIRECT_TABLE_BYTES", 0 if hashed else 1 << 20)
        try:
            sampler = make(budget, presample=presample, num_subgraphs=3).prepare(graph, np.array(sorted(split)))
            sampled = as_lists(sampler.sample(graph, np.array([2]), seed=2**64 - 3, epoch=4, batch=2**20))
        except InputError:  # the split is too hard to meet with these draws
            reject()
    assert sampled == expected(sampler, graph, split, presample, (2**64 - 3, 4, 2**20))


@pytest.mark.parametrize("number", [127, 128, 129, 300])
def test_more_draws_than_a_chunk(graph, number):
    split = set(range(0, 200, 3))
    for sampler in (SaintNodeSampler(number), SaintEdgeSampler(number), SaintWalkSampler(number, 5)):
        sampler.presample = 0
        prepared = sampler.prepare(graph, np.array(sorted(split)))
        assert as_lists(prepared.sample(graph, ONE, seed=1)) == expected(prepared, graph, split, 0, (1, 0, 0))


# The laws


def inclusion(sampler, graph, batches):
    """How often each vertex is in a batch."""
    counts = np.zeros(graph.num_nodes)
    for batch in range(batches):
        counts[sampler.sample(graph, ONE, batch=batch).node_ids] += 1
    return counts


def skewed():
    """Every edge in both directions; a hub, a clique and a path: degrees from 1 to 8."""
    pairs = [(0, i) for i in range(1, 9)] + [(i, j) for i in range(9, 13) for j in range(9, i)] + [(8, 9), (12, 13), (13, 14), (14, 15)]
    src, dst = np.array(pairs).T
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


def mixed():
    """Every edge in both directions; a clique of 6, one of 4 and a cycle of 6, joined by bridges: no vertex is rare."""
    clique = [(i, j) for i in range(6) for j in range(i)] + [(i, j) for i in range(6, 10) for j in range(6, i)]
    src, dst = np.array(clique + [(i, 10 + (i - 9) % 6) for i in range(10, 16)] + [(5, 6), (9, 10)]).T
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


def means(graph):
    """The matrix that takes means over in-edges, dense: A[v, u]."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    degrees = graph.in_degrees()
    np.add.at(matrix, (np.repeat(np.arange(graph.num_nodes), degrees), graph.indices), 1)
    return matrix / np.maximum(degrees, 1)[:, None]


def assert_rates(counts, batches, rates, slack=1.0):
    """Counts of independent batches against the rates: chi-square over the vertices, p = 0.001 if these were independent too."""
    inner = (rates > 0) & (rates < 1)
    assert (counts[rates == 0] == 0).all()
    assert (counts[rates == 1] == batches).all()
    z = (counts - batches * rates)[inner] / np.sqrt(batches * rates * (1 - rates))[inner]
    freedom = inner.sum()
    assert (z**2).sum() < slack * (freedom + 3.3 * np.sqrt(2 * freedom) + 4)


def node_rates(graph, budget):
    """The probability of each vertex to be in a subgraph, and of each pair."""
    law = (means(graph) ** 2).sum(0)
    law /= law.sum()
    alone, pair = (1 - law) ** budget, (1 - law[:, None] - law) ** budget
    return 1 - alone, 1 - alone[:, None] - alone + pair


def test_the_node_sampler_draws_by_squared_columns():
    graph, batches = skewed(), 4000
    sampler = SaintNodeSampler(5, presample=0).prepare(graph, np.arange(16))
    counts = inclusion(sampler, graph, batches)
    assert_rates(counts, batches, node_rates(graph, 5)[0])
    with pytest.raises(AssertionError):  # a uniform law does not pass
        assert_rates(counts, batches, np.full(16, 1 - (1 - 1 / 16) ** 5))


def test_the_edge_sampler_draws_pairs_by_inverse_degrees():
    """One edge a subgraph: both ends together with probability proportional to 1 / d(u) + 1 / d(v)."""
    graph, batches = skewed(), 6000
    degrees = graph.in_degrees()
    counts, law = np.zeros((16, 16)), np.zeros((16, 16))
    sampler = SaintEdgeSampler(1, presample=0).prepare(graph, np.arange(16))
    for batch in range(batches):
        u, v = sorted(sampler.sample(graph, ONE, batch=batch).node_ids)
        counts[u, v] += 1
    dst = np.repeat(np.arange(16), degrees)
    law[np.minimum(graph.indices, dst), np.maximum(graph.indices, dst)] = 1 / degrees[graph.indices] + 1 / degrees[dst]
    uniform = (law > 0) / (law > 0).sum()
    assert_rates(counts, batches, law / law.sum())
    with pytest.raises(AssertionError):
        assert_rates(counts, batches, uniform)


def test_the_walk_sampler_visits_by_the_transition_matrix():
    """One walk a subgraph, of three steps against the edges of a directed graph, from a uniform root of the split."""
    graph = Graph.from_edges([1, 2, 3, 3, 4, 5, 5, 6, 0], [0, 0, 1, 2, 3, 3, 3, 4, 4], 8)
    roots, batches = np.array([0, 3, 7]), 5000
    sampler = SaintWalkSampler(1, 3, presample=0).prepare(graph, roots)
    step = means(graph) + np.diag(graph.in_degrees() == 0)  # a vertex without in-edges is stayed at
    rates = np.zeros(8)
    for v in range(8):  # the probability of a visit: 1 minus that of three steps that avoid v
        avoiding = step * (np.arange(8) != v)[:, None] * (np.arange(8) != v)
        start = np.isin(np.arange(8), roots) * (np.arange(8) != v) / 3
        rates[v] = 1 - (start @ np.linalg.matrix_power(avoiding, 3)).sum()
    counts = inclusion(sampler, graph, batches)
    assert_rates(counts, batches, rates)
    with pytest.raises(AssertionError):  # nor do walks along the edges
        assert_rates(counts, batches, rates[::-1])


def test_presampled_counts_are_the_analytic_rates():
    """Of vertices and of edges, for the node sampler."""
    graph, presample, budget = skewed(), 6000, 5
    counts = SaintNodeSampler(budget, presample=presample).prepare(graph, np.arange(16))._counts
    nodes, pairs = node_rates(graph, budget)
    dst = np.repeat(np.arange(16), graph.in_degrees())
    assert counts.number == presample
    assert_rates(counts.of_nodes, presample, nodes)
    assert_rates(counts.of_edges, presample, pairs[graph.indices, dst], slack=2.5)  # an edge and its reverse are together


# What the weights estimate


def z_values(rows):
    """Of the means of independent rows."""
    return rows.mean(0) / (rows.std(0, ddof=1) / np.sqrt(len(rows)) + 1e-12)


@pytest.mark.parametrize(
    "sampler",
    [SaintNodeSampler(12, presample=60), SaintEdgeSampler(6, presample=60), SaintWalkSampler(4, 2, presample=60)],
    ids=lambda s: type(s).__name__,
)
def test_weighted_sums_estimate_those_of_the_graph(sampler, monkeypatch):
    """Neighbour sums A x at every vertex that a batch holds, and the mean loss; over 200 preparations of 60 subgraphs, 8 batches each."""
    graph, preparations, batches = mixed(), 200, 8
    num_nodes, split, rng = graph.num_nodes, np.arange(0, graph.num_nodes, 2), np.random.default_rng(0)
    x, losses = 1 + rng.random(num_nodes), np.arange(num_nodes) / 4
    exact = np.zeros(num_nodes)
    np.add.at(exact, np.repeat(np.arange(num_nodes), graph.in_degrees()), x[graph.indices])
    errors, plain_errors = np.zeros((2, preparations, num_nodes))
    loss_errors, plain_loss_errors = np.zeros((2, preparations, 1))
    for i in range(preparations):
        monkeypatch.setattr(saint, "HOP_PRESAMPLE", np.uint64(100 + i))  # other presampled subgraphs each time
        prepared = sampler.prepare(graph, split)
        for j in range(batches):
            batch = prepared.sample(graph, ONE, seed=i, batch=j)
            block, nodes = batch.blocks[0], batch.node_ids
            owner = np.repeat(np.arange(len(nodes)), np.diff(block.indptr))
            for of, weights in ((errors, block.weights), (plain_errors, np.ones(block.num_edges))):
                of[i, nodes] += np.bincount(owner, weights * x[nodes[block.indices]], len(nodes)) - exact[nodes]
            loss_errors[i] += (batch.seed_weights * losses[batch.seeds]).mean() - losses[split].mean()
            plain_loss_errors[i] += losses[batch.seeds].mean() - losses[split].mean()
    assert abs(z_values(errors)).max() < 3.6  # 16 vertices, p = 0.005
    assert abs(z_values(loss_errors)).max() < 3.3
    assert abs(z_values(plain_errors)).max() > 10
    if isinstance(sampler, SaintNodeSampler):  # here the others' laws are nearly uniform
        assert abs(z_values(plain_loss_errors)).max() > 5


# Batches, epochs, options


def test_a_subgraph_without_a_seed_is_drawn_again():
    """Vertex 15 ends the path and is rarely drawn: every batch has it all the same, as its only seed."""
    graph = skewed()
    sampler = SaintNodeSampler(2, presample=50).prepare(graph, np.array([15]))
    for batch in range(50):
        assert sampler.sample(graph, ONE, batch=batch).seeds.tolist() == [15]
    assert sampler._counts.of_nodes[15] == 50


def test_a_split_that_cannot_be_met():
    graph = Graph.from_edges([0, 1], [1, 0], 3)
    with pytest.raises(InputError, match=r"100 subgraphs in a row met none of the 1 vertices to train on: let SaintEdgeSampler draw more"):
        SaintEdgeSampler(2).prepare(graph, np.array([2]))


@pytest.mark.parametrize("make", [SaintNodeSampler, SaintEdgeSampler, SaintWalkSampler])
def test_batches_are_pure(graph, make):
    batches = check_pure(make(40, presample=30).prepare(graph, np.arange(0, 200, 3)), graph, [ONE] * 5)
    assert len({tuple(nodes) for _, nodes, *_ in batches}) == 5


def test_an_epoch_has_as_many_seeds_as_the_split(graph):
    split = np.arange(0, 200, 3)
    sampler = SaintEdgeSampler(20).prepare(graph, split)
    units = sampler.units(graph, split)
    total = np.mean([sum(sampler.sample(graph, u[None], epoch=e, batch=u).num_seeds for u in units) for e in range(10)])
    assert abs(total / len(split) - 1) < 0.15
    assert sampler._counts.of_nodes.sum() >= 20 * graph.num_nodes > sampler._counts.of_nodes.sum() - 40
    fixed = SaintEdgeSampler(20, presample=7, num_subgraphs=5).prepare(graph, split)
    assert (len(fixed.units(graph, split)), fixed._counts.number) == (5, 7)


def test_through_the_loader(dataset):
    batches = check_loader(dataset, SaintWalkSampler(20, 3, num_layers=3, num_subgraphs=6), 1)
    assert len(batches) == 6
    with pytest.raises(InputError, match="a batch of 1024 subgraphs: for SaintWalkSampler it is one; use batch_size 1"):
        SampleLoader(dataset, SaintWalkSampler(20, num_subgraphs=6))


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
@pytest.mark.parametrize(
    "sampler", [SaintNodeSampler(600), SaintEdgeSampler(300), SaintWalkSampler(200, 2)], ids=lambda s: type(s).__name__
)
def test_training(sampler):
    accuracy, loss = fit(sampler, 1)
    assert accuracy > 0.6
    assert loss < 2


def test_presampling_cannot_be_guessed_from_a_batch():
    """Batches of the user's seed 0 have other random numbers than the presampled subgraphs, which have seed 0 too."""
    graph = grid()
    sampler = SaintNodeSampler(6, presample=1, num_subgraphs=1).prepare(graph, np.arange(36))
    assert sorted(sampler.sample(graph, ONE).node_ids) != np.flatnonzero(sampler._counts.of_nodes).tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SaintNodeSampler(0), r"budget is 0: a subgraph takes 1 to 2147483647 draws"),
        (lambda: SaintEdgeSampler(1 << 31), "budget is 2147483648"),
        (lambda: SaintWalkSampler(5, 0), "walk_length is 0"),
        (lambda: SaintWalkSampler(0), r"num_roots \* \(walk_length \+ 1\) is 0"),
        (lambda: SaintNodeSampler(5, presample=-1), "presample is -1: it is a number of subgraphs, 0 for no normalisation"),
        (lambda: SaintNodeSampler(5, num_subgraphs=0), "num_subgraphs is 0"),
        (lambda: SaintNodeSampler(5, num_layers=0), "num_layers is 0"),
        (lambda: SaintNodeSampler(5).prepare(Graph.from_edges([], [], 3), ONE), "the graph has no edges: there is nothing to draw by"),
        (lambda: SaintEdgeSampler(5).prepare(Graph.from_edges([], [], 3), ONE), "the graph has no edges"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(InputError, match=message):
        make()
