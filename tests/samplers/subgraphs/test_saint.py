"""GraphSAINT equals a slow reference and rejects invalid arguments; ``test_saint_distribution.py`` tests its distributions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from cases.relabelling import relabelled_by
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

import hoptrain.samplers.subgraphs.saint as saint
from hoptrain.engine import Graph, InputError
from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler, SampleLoader

ONE = np.array([0])


def draws(sampler, graph, key, attempt):
    """Return the nodes that the reference draws for a prepared sampler."""
    columns = reference.columns_of(graph)
    if isinstance(sampler, SaintNodeSampler):
        return reference.node_draws([table.tolist() for table in sampler.tables], sampler.budget, key, attempt)
    if isinstance(sampler, SaintEdgeSampler):
        return reference.edge_draws(columns, sampler.budget, key, attempt)
    return reference.walks(columns, sampler.split.seeds.tolist(), sampler.num_roots, sampler.walk_length, key, attempt)


def members(sampler, graph, split, key):
    """Return the nodes of the first attempt of the reference that contains a node of the split."""
    for attempt in range(100):
        nodes, num_seeds = reference.seeds_first(draws(sampler, graph, key, attempt), split)
        if num_seeds:
            return nodes, num_seeds
    raise AssertionError("no seed")


def expected(sampler, graph, split, address):
    """Return a batch of the reference without weights."""
    nodes, num_seeds = members(sampler, graph, split, (*address, 0))
    return num_seeds, nodes, *reference.induced(graph, nodes)


def outcomes(sampler, graph):
    """Return the possible results of a draw of a node or edge sampler as (probability, nodes)."""
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
    """Compute the weights of edges and seeds by inclusion and exclusion, in exact fractions."""
    distribution = outcomes(sampler, graph)
    whole = math.lcm(*(p.denominator for p, _ in distribution))
    distribution = [(int(p * whole), hit) for p, hit in distribution]

    def without(*sets):
        return sum(p for p, hit in distribution if not any(hit & some for some in sets)) ** sampler.budget

    def together(*sets):
        """Return the probability that each of the sets contains at least one draw."""
        chosen = [[sets[i] for i in range(len(sets)) if bits >> i & 1] for bits in range(2 ** len(sets))]
        return Fraction(sum((-1) ** len(some) * without(*some) for some in chosen), whole**sampler.budget)

    owner = np.repeat(nodes, np.diff(indptr)).tolist()
    edges = [together({v}, split) / together({v}, {int(graph.indices[e])}, split) for v, e in zip(owner, edge_ids, strict=True)]
    seeds = [Fraction(num_seeds, len(split)) * together(split) / together({v}) for v in nodes[:num_seeds]]
    return edges, seeds


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
@settings(max_examples=15)
@given(graph=graphs(), budget=st.integers(1, 12), hashed=st.booleans(), data=st.data())
def test_any_graph(kind, graph, budget, hashed, data):
    split = data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1))
    if kind != "walk":  # so that draws can contain a node of the split
        graph = Graph.from_edges(
            np.r_[graph.indices, range(graph.num_nodes)],
            np.r_[np.repeat(np.arange(graph.num_nodes), graph.in_degrees()), range(graph.num_nodes)],
        )
    length = data.draw(st.integers(1, 7))
    make = {"node": SaintNodeSampler, "edge": SaintEdgeSampler}.get(kind) or (lambda *a, **options: SaintWalkSampler(*a, length, **options))
    with relabelled_by(hashed):
        try:
            sampler = make(budget, num_subgraphs=3).prepare(graph, np.array(sorted(split)))
            batch = sampler.sample(graph, np.array([2]), seed=2**64 - 3, epoch=4, batch=2**20)
        except InputError:  # these draws rarely contain a node of the split
            reject()
    *sampled, weights, seed_weights = as_lists(batch)
    num_seeds, nodes, indptr, _, edge_ids = sampled
    assert tuple(sampled) == expected(sampler, graph, split, (2**64 - 3, 4, 2**20))
    if kind != "walk":
        edges, seeds = exact_weights(sampler, graph, split, nodes, num_seeds, indptr, edge_ids)
        np.testing.assert_allclose(weights, [float(weight) for weight in edges], rtol=1e-6)
        np.testing.assert_allclose(seed_weights, [float(weight) for weight in seeds], rtol=1e-6)


@settings(max_examples=20)
@given(graph=graphs(), is_sorted=st.booleans(), length=st.integers(1, 4), roots=st.integers(1, 9), data=st.data())
def test_walks_are_counted_as_documented(graph, is_sorted, length, roots, data):
    """Walk weights equal those computed in Python from the reference's walks, eight from each root; long columns are searched by bisection."""
    split = sorted(data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1)))
    columns = [sorted(column) for column in reference.columns_of(graph)] if is_sorted else reference.columns_of(graph)
    graph = Graph(graph.indptr, np.array([u for column in columns for u in column], np.int64))
    sampler = SaintWalkSampler(roots, length, error=0.9, num_subgraphs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saint, "least_walks", lambda error: 8)
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
    """Return ``kernel`` with an estimated error of 0, so that the sampler counts no further walks."""
    return lambda *args: kernel(*args) * 0


def at_least_once(draws, rate):
    return 1 - (1 - rate) ** draws


def counted(columns, split, length, number):
    """Count the walks that visit each node, with the documented smoothing, and those that visit both ends of an edge."""
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


# The distributions


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
    with refused("1024", "batch SaintWalkSampler one", "batch_size 1"):
        SampleLoader(dataset, SaintWalkSampler(20, num_subgraphs=6))


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize(
    "sampler", [SaintNodeSampler(600), SaintEdgeSampler(300), SaintWalkSampler(200, 2)], ids=lambda s: type(s).__name__
)
def test_training(sampler):
    accuracy, loss = fit(sampler, 1)
    assert accuracy > 0.6
    assert loss < 2


MISTAKES = {
    "no budget": Mistake(lambda: SaintNodeSampler(0), value="0", rule="budget subgraph draws", remedy="1 2147483647"),
    "too large a budget": Mistake(
        lambda: SaintEdgeSampler(1 << 31), value="2147483648", rule="budget subgraph draws", remedy="1 2147483647"
    ),
    "walks of no steps": Mistake(lambda: SaintWalkSampler(5, 0), value="0", rule="walk_length walk least one step"),
    "no roots": Mistake(lambda: SaintWalkSampler(0), value="0", rule="num_roots * (walk_length + 1) subgraph draws", remedy="1 2147483647"),
    "an error of 0": Mistake(lambda: SaintWalkSampler(5, error=0.0), value="0.0", rule="error relative standard", remedy="between 0 1"),
    "an error without weights": Mistake(
        lambda: SaintWalkSampler(5, error=0.2, normalise=False), value="0.2", rule="error normalise=False no weights", remedy="leave out"
    ),
    "an error that takes too many walks": Mistake(
        lambda: SaintWalkSampler(5, error=1e-6).prepare(grid(), np.arange(36)),
        value="1e-06",
        rule="error more 4,294,967,296 walks 36 nodes",
        remedy="larger",
    ),
    "no subgraphs": Mistake(lambda: SaintNodeSampler(5, num_subgraphs=0), value="0", rule="num_subgraphs epoch least one"),
    "a model of no layers": Mistake(lambda: SaintNodeSampler(5, num_layers=0), value="0", rule="num_layers model layers", remedy="1 4079"),
    **{
        f"a graph without edges for {sampler.__name__}": Mistake(
            lambda sampler=sampler: sampler(5).prepare(Graph.from_edges([], [], 3), ONE),
            value="no edges",
            rule="graph draws edges",
            remedy="another sampler",
        )
        for sampler in (SaintNodeSampler, SaintEdgeSampler)
    },
    "a split that cannot be met": Mistake(
        lambda: SaintEdgeSampler(2).prepare(Graph.from_edges([0, 1], [1, 0], 3), np.array([2])),
        value="1 nodes",
        rule="100 subgraphs none train",
        remedy="SaintEdgeSampler draw more",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
