"""GraphSAINT: the laws of its draws, what its weights estimate, and equality with a slow reference."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

import hoptrain.samplers.scratch.workspace as workspace
import hoptrain.samplers.subgraphs.saint as saint
from hoptrain.engine import Graph, InputError
from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler, SampleLoader

ONE = np.array([0])


def draws(sampler, graph, key, attempt):
    """The reference's drawn vertices for a prepared sampler."""
    columns = reference.columns_of(graph)
    if isinstance(sampler, SaintNodeSampler):
        return reference.node_draws([table.tolist() for table in sampler.tables], sampler.budget, key, attempt)
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


def expected(sampler, graph, split, address):
    """A batch without its weights."""
    nodes, num_seeds = members(sampler, graph, split, (*address, 0))
    return num_seeds, nodes, *reference.induced(graph, nodes)


def outcomes(sampler, graph):
    """What a draw may hit, as (probability, vertices); of vertices and of edges."""
    columns = reference.columns_of(graph)
    if isinstance(sampler, SaintEdgeSampler):
        ends = [v for v, column in enumerate(columns) if column]
        return [(Fraction(1, len(ends) * len(columns[v])), {u, v}) for v in ends for u in columns[v]]
    shares = [Fraction(0)] * graph.num_nodes
    for v, (threshold, alias) in enumerate(zip(*(table.tolist() for table in sampler.tables), strict=True)):
        shares[v] += Fraction(threshold, 2**32 * graph.num_nodes)
        shares[alias] += Fraction(2**32 - threshold, 2**32 * graph.num_nodes)
    return [(share, {v}) for v, share in enumerate(shares)]


def exact_weights(sampler, graph, split, nodes, num_seeds, indptr, edge_ids):
    """By inclusion and exclusion, in fractions: of the edges, and of the seeds."""
    law = outcomes(sampler, graph)
    whole = math.lcm(*(p.denominator for p, _ in law))
    law = [(int(p * whole), hit) for p, hit in law]

    def without(*sets):
        return sum(p for p, hit in law if not any(hit & some for some in sets)) ** sampler.budget

    def together(*sets):
        """The probability that some draw hits the first set, some the second, ..."""
        chosen = [[sets[i] for i in range(len(sets)) if bits >> i & 1] for bits in range(2 ** len(sets))]
        return Fraction(sum((-1) ** len(some) * without(*some) for some in chosen), whole**sampler.budget)

    owner = np.repeat(nodes, np.diff(indptr)).tolist()
    edges = [together({v}, split) / together({v}, {int(graph.indices[e])}, split) for v, e in zip(owner, edge_ids, strict=True)]
    seeds = [Fraction(num_seeds, len(split)) * together(split) / together({v}) for v in nodes[:num_seeds]]
    return edges, seeds


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
@settings(max_examples=15, deadline=None)
@given(graph=graphs(), budget=st.integers(1, 12), hashed=st.booleans(), data=st.data())
def test_any_graph(kind, graph, budget, hashed, data):
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
            sampler = make(budget, num_subgraphs=3).prepare(graph, np.array(sorted(split)))
            batch = sampler.sample(graph, np.array([2]), seed=2**64 - 3, epoch=4, batch=2**20)
        except InputError:  # the split is too hard to meet with these draws
            reject()
    *sampled, weights, seed_weights = as_lists(batch)
    num_seeds, nodes, indptr, _, edge_ids = sampled
    assert tuple(sampled) == expected(sampler, graph, split, (2**64 - 3, 4, 2**20))
    if kind != "walk":
        edges, seeds = exact_weights(sampler, graph, split, nodes, num_seeds, indptr, edge_ids)
        np.testing.assert_allclose(weights, [float(weight) for weight in edges], rtol=1e-6)
        np.testing.assert_allclose(seed_weights, [float(weight) for weight in seeds], rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(graph=graphs(), is_sorted=st.booleans(), length=st.integers(1, 4), roots=st.integers(1, 9), data=st.data())
def test_walks_are_counted_as_documented(graph, is_sorted, length, roots, data):
    """Weights by Python's floats from the walks of the reference, eight from each root; also by search in long columns."""
    split = sorted(data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1)))
    columns = [sorted(column) for column in reference.columns_of(graph)] if is_sorted else reference.columns_of(graph)
    graph = Graph(graph.indptr, np.array([u for column in columns for u in column], np.int64))
    sampler = SaintWalkSampler(roots, length, error=0.9, num_subgraphs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saint, "_least_walks", lambda error: 8)
        patch.setattr(saint.visits, "walk_pair_rates", without_a_goal(saint.visits.walk_pair_rates))
        weights = sampler.prepare(graph, np.array(split)).weights
    hits, together = counted(columns, split, length, 8)
    total = 8 * len(split)
    for v, column in enumerate(columns):
        of_v = at_least_once(roots, hits.get(v, 0) / total)
        assert v not in split or np.isclose(weights.of_nodes[v], 1 / (len(split) * of_v), rtol=1e-6)
        for e, u in enumerate(column, graph.indptr[v]):
            a, b = hits.get(u, 0) / total, hits.get(v, 0) / total
            count, beside = together.get((u, v), 0), roots * total * a * b
            both = max(min(a, b, (count + (count + 1) / (count + 1 + beside)) / total), a + b - 1)
            pair = of_v if u == v else at_least_once(roots, a) + of_v - 1 + max(0, 1 - a - b + both) ** roots
            assert np.isclose(weights.of_edges[e], of_v / pair if a * b else 0, rtol=1e-4)


def without_a_goal(kernel):
    """That it says that the error is reached."""
    return lambda *args: kernel(*args) * 0


def at_least_once(draws, rate):
    return 1 - (1 - rate) ** draws


def counted(columns, split, length, number):
    """Of ``number`` walks from each vertex of the split: how many visit a vertex, steadied, and how many both ends of an edge."""
    visits, together, known = {}, {}, dict.fromkeys(split, number)
    for turn in range(number):
        for i, root in enumerate(split):
            stream = reference.words((0, 0, turn, 4088), i, 2 + length)
            walk = [root]
            for word in stream[2:]:
                column = columns[walk[-1]]
                walk.append(column[reference.bounded(word, len(column))] if column else walk[-1])
            for v in set(walk) - {root}:
                visits[v] = visits.get(v, 0) + 1
            for v in set(walk):
                for u in set(walk) - {v}:
                    together[u, v] = together.get((u, v), 0) + 1
    hits = {}
    for v in visits | known:
        count, beside = visits.get(v, 0), known.get(v, 0)
        hits[v] = min(beside + count + (count + 1) / (count + 1 + beside), number * len(split))
    return hits, together


@pytest.mark.parametrize("number", [127, 128, 129, 300])
def test_more_draws_than_a_chunk(graph, number):
    split = set(range(0, 200, 3))
    for sampler in (SaintNodeSampler(number), SaintEdgeSampler(number), SaintWalkSampler(number, 5)):
        sampler.normalise = False
        prepared = sampler.prepare(graph, np.array(sorted(split)))
        assert as_lists(prepared.sample(graph, ONE, seed=1)) == (*expected(prepared, graph, split, (1, 0, 0)), None, None)


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
    sampler = SaintNodeSampler(5, normalise=False).prepare(graph, np.arange(16))
    counts = inclusion(sampler, graph, batches)
    assert_rates(counts, batches, node_rates(graph, 5)[0])
    with pytest.raises(AssertionError):  # a uniform law does not pass
        assert_rates(counts, batches, np.full(16, 1 - (1 - 1 / 16) ** 5))


def test_the_edge_sampler_draws_pairs_by_inverse_degrees():
    """One edge a subgraph: both ends together with probability proportional to 1 / d(u) + 1 / d(v)."""
    graph, batches = skewed(), 6000
    degrees = graph.in_degrees()
    counts, law = np.zeros((16, 16)), np.zeros((16, 16))
    sampler = SaintEdgeSampler(1, normalise=False).prepare(graph, np.arange(16))
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
    sampler = SaintWalkSampler(1, 3, normalise=False).prepare(graph, roots)
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


# What the weights estimate


def sums(sampler, graph, split, batches, seed=0):
    """Of many batches: each vertex's mean weighted sum over its in-edges, by the exact one; and the mean losses, by the exact one.

    Returns the vertices' ratios, how many batches had them, and the losses' ratios (batches,). Features and losses are no constants.
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
    """Every edge in both directions; a vertex of rank r has about 600 / r edges to others in turn, and two to those beside it."""
    v = np.arange(num_nodes)
    src = np.repeat(v, 1 + 600 // (v + 1))
    dst = (src + 1 + np.arange(len(src)) * 7919 % (num_nodes - 1)) % num_nodes
    src, dst = np.r_[src, v], np.r_[dst, (v + 1) % num_nodes]
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src])


@pytest.mark.parametrize("sampler", [SaintNodeSampler(66), SaintEdgeSampler(35), SaintWalkSampler(24)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("every", [1, 3])
def test_sums_over_five_percent_of_the_vertices(sampler, every):
    """Expected aggregation and loss within 1 % of the exact ones, all vertices that batches have taken together."""
    graph = powerlaw()
    split = np.arange(0, graph.num_nodes, every)
    ratio, times, losses = sums(sampler.prepare(graph, split), graph, split, 4000)
    assert 0.03 < times.sum() / 4000 / graph.num_nodes < 0.06
    assert abs(np.average(ratio, weights=times) - 1) < 0.01
    assert abs(losses.mean() - 1) < 0.01
    assert losses.std() / np.sqrt(len(losses)) < 0.005  # so that the bound says something


def z_values(rows):
    """Of the means of independent rows."""
    return rows.mean(0) / (rows.std(0, ddof=1) / np.sqrt(len(rows)) + 1e-12)


@pytest.mark.parametrize("sampler", [SaintNodeSampler(12), SaintEdgeSampler(6), SaintWalkSampler(4, 2)], ids=lambda s: type(s).__name__)
def test_weighted_sums_estimate_those_of_the_graph(sampler, monkeypatch):
    """Neighbour sums A x at every vertex that a batch holds, and the mean loss; walks are counted anew each time, 32 from each root."""
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
    assert abs(z_values(errors)).max() < 3.6  # 16 vertices, p = 0.005
    assert abs(z_values(loss_errors)).max() < 3.3
    assert abs(z_values(plain_errors)).max() > 10
    if isinstance(sampler, SaintNodeSampler):  # here the others' laws are nearly uniform
        assert abs(z_values(plain_loss_errors)).max() > 5


def test_half_the_error_takes_more_walks(monkeypatch):
    """The stated error decides how many, the same each time."""
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
    """Vertex 15 ends the path and is rarely drawn: every batch has it all the same, as its only seed."""
    graph = skewed()
    sampler = SaintNodeSampler(2).prepare(graph, np.array([15]))
    for batch in range(50):
        sampled = sampler.sample(graph, ONE, batch=batch)
        assert (sampled.seeds.tolist(), sampled.seed_weights.tolist()) == ([15], [1.0])
    assert sampler.num_items == 1


def test_a_split_that_cannot_be_met():
    graph = Graph.from_edges([0, 1], [1, 0], 3)
    with pytest.raises(InputError, match=r"100 subgraphs in a row met none of the 1 vertices to train on: let SaintEdgeSampler draw more"):
        SaintEdgeSampler(2).prepare(graph, np.array([2]))


@pytest.mark.parametrize("make", [SaintNodeSampler, SaintEdgeSampler, SaintWalkSampler])
def test_batches_are_pure(graph, make):
    batches = check_pure(make(40).prepare(graph, np.arange(0, 200, 3)), graph, [ONE] * 5)
    assert len({tuple(nodes) for _, nodes, *_ in batches}) == 5


def test_an_epoch_has_as_many_seeds_as_the_split(graph):
    split = np.arange(0, 200, 3)
    sampler = SaintEdgeSampler(20).prepare(graph, split)
    units = sampler.items(graph, split)
    total = np.mean([sum(sampler.sample(graph, u[None], epoch=e, batch=u).num_seeds for u in units) for e in range(10)])
    assert abs(total / len(split) - 1) < 0.15
    assert len(SaintEdgeSampler(20, num_subgraphs=5).prepare(graph, split).items(graph, split)) == 5
    plain = SaintWalkSampler(20, normalise=False).prepare(graph, split)
    assert (plain.weights, plain.num_items) == (None, SaintWalkSampler(20).prepare(graph, split).num_items)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SaintNodeSampler(0), r"budget is 0: a subgraph takes 1 to 2147483647 draws"),
        (lambda: SaintEdgeSampler(1 << 31), "budget is 2147483648"),
        (lambda: SaintWalkSampler(5, 0), "walk_length is 0"),
        (lambda: SaintWalkSampler(0), r"num_roots \* \(walk_length \+ 1\) is 0"),
        (lambda: SaintWalkSampler(5, error=0.0), "error is 0.0: it is a relative standard error, between 0 and 1"),
        (lambda: SaintWalkSampler(5, error=0.2, normalise=False), "error is 0.2 with normalise=False: there are no weights"),
        (
            lambda: SaintWalkSampler(5, error=1e-6).prepare(grid(), np.arange(36)),
            "error is 1e-06: it takes more than 4,294,967,296 walks from 36 vertices; raise it",
        ),
        (lambda: SaintNodeSampler(5, num_subgraphs=0), "num_subgraphs is 0"),
        (lambda: SaintNodeSampler(5, num_layers=0), "num_layers is 0"),
        (lambda: SaintNodeSampler(5).prepare(Graph.from_edges([], [], 3), ONE), "the graph has no edges: there is nothing to draw by"),
        (lambda: SaintEdgeSampler(5).prepare(Graph.from_edges([], [], 3), ONE), "the graph has no edges"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(InputError, match=message):
        make()
