"""HeteroLaborSampler: bit-identical to its reference, and to LaborSampler for a single relation.

Sums are unbiased, and relations share sources.
"""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import hetero, neighbor
from reference import labor as labor_reference

from hoptrain.engine import Graph
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HeteroLaborSampler, LaborSampler, Workspace
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.nodewise import labor

TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("b", "s", "a"), ("c", "t", "a")]


def expected(graph, seeds, fanouts, key):
    """Return the edges whose source's random word is below the destination's threshold.

    Source type k uses the random words of hop 16 k + h for hop h.
    """

    def choose(relation, _, h, v, __):
        columns, fanout = graph.relations[relation], fanouts[relation][h]
        column = range(columns.indptr[v], columns.indptr[v + 1])
        threshold = 2**32 if fanout < 0 or len(column) <= fanout else fanout * 2**32 // len(column)
        kind = list(graph.num_nodes).index(relation[0])
        edges = [(e, int(columns.indices[e])) for e in column]
        return [(e, u) for e, u in edges if fanout and neighbor.words((*key, 16 * kind + h), u, 1)[0] < threshold]

    nodes = {name: list(seeds.get(name, [])) for name in graph.num_nodes}
    return hetero.hops_of(graph, nodes, len(next(iter(fanouts.values()))), choose, "all"), nodes


def expected_by_importance(graph, seeds, fanouts, rounds, key):
    """Return the edges kept with thresholds from ``rounds`` fixed-point iterations over each relation's own edges."""
    nodes, hops = {name: list(seeds.get(name, [])) for name in graph.num_nodes}, []
    for h in range(len(next(iter(fanouts.values())))):
        before, drawn = {name: len(ids) for name, ids in nodes.items()}, {}
        for relation, columns in graph.relations.items():
            (source, _, destination), fanout, starts = relation, fanouts[relation][h], columns.indptr.tolist()
            kind, dsts = list(graph.num_nodes).index(source), nodes[destination][: before[destination]]
            of = {v: columns.indices[starts[v] : starts[v + 1]].tolist() for v in dsts}
            wanted, own_rounds = (fanout, rounds) if fanout > 0 else (columns.num_edges, 0)
            rows = []
            for v, thresholds in zip(dsts, labor_reference.thresholds_of(of, dsts, wanted, own_rounds), strict=True):
                kept = [
                    (starts[v] + offset, u)
                    for offset, (u, threshold) in enumerate(zip(of[v], thresholds, strict=True))
                    if fanout and neighbor.words((*key, 16 * kind + h), u, 1)[0] < threshold
                ]
                nodes[source] += dict.fromkeys(u for _, u in kept if u not in nodes[source])
                rows.append([(edge, nodes[source].index(u)) for edge, u in kept])
            drawn[relation] = rows
        hops.append({relation: (*hetero.block_of(rows), len(nodes[relation[0]])) for relation, rows in drawn.items()})
    return hops, nodes


def as_lists(batch):
    hops = [
        {relation: (b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for relation, b in hop.items()}
        for hop in reversed(batch.blocks)
    ]
    return hops, {name: ids.tolist() for name, ids in batch.node_ids.items()}


@st.composite
def problems(draw):
    num_nodes = {name: draw(st.integers(1, 10)) for name in "ab"} | {"c": draw(st.integers(0, 3))}
    edges = {}
    for relation in draw(st.lists(st.sampled_from(TRIPLES), min_size=1, unique=True)):
        sources = num_nodes[relation[0]]
        pair = st.tuples(st.integers(0, max(0, sources - 1)), st.integers(0, min(3, num_nodes[relation[2]] - 1)))
        edges[relation] = tuple(np.array(draw(st.lists(pair, max_size=40 if sources else 0)), np.int64).reshape(-1, 2).T)
    hops = draw(st.integers(1, 3))
    return {
        "graph": HeteroGraph.from_edges(num_nodes, edges),
        "fanouts": {relation: draw(st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=hops, max_size=hops)) for relation in edges},
        "bulk": [{"a": draw(st.lists(st.integers(0, num_nodes["a"] - 1), min_size=1, max_size=5, unique=True))} for _ in range(3)],
    }


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=60)
@given(problem=problems(), threads=st.sampled_from([1, 2]), known=st.booleans())
def test_any_problem(problem, threads, known):
    """Batches equal the reference's, also for graphs for which the random words of all nodes are computed in advance."""
    graph, fanouts, sampler = problem["graph"], problem["fanouts"], HeteroLaborSampler(problem["fanouts"])
    workspace, bulk = Workspace(threads), [graph.numbered(seeds) for seeds in problem["bulk"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labor, "EDGES_PER_WORD", 0 if known else 2)
        for _ in range(2):  # the second time with used scratch buffers
            batches = sampler.sample_bulk(graph, bulk, seed=5, epoch=3, first_batch=7, workspace=workspace)
            for i, (batch, items) in enumerate(zip(batches, bulk, strict=True)):
                assert as_lists(batch) == expected(graph, problem["bulk"][i], fanouts, (5, 3, 7 + i))
                check_batch(batch, sampler, graph, items)


@pytest.mark.timeout(300)
@settings(max_examples=40)
@given(problem=problems(), rounds=st.integers(1, 3), known=st.booleans())
def test_importances_are_those_of_a_relation_s_own_edges(problem, rounds, known):
    graph, fanouts = problem["graph"], problem["fanouts"]
    sampler, workspace = HeteroLaborSampler(fanouts, importance_rounds=rounds), Workspace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labor, "EDGES_PER_WORD", 0 if known else 2)
        for i, seeds in enumerate(problem["bulk"]):
            batch = sampler.sample(graph, seeds, seed=5, epoch=3, batch=i, workspace=workspace)
            assert as_lists(batch) == expected_by_importance(graph, seeds, fanouts, rounds, (5, 3, i))
            check_batch(batch, sampler, graph, graph.numbered(seeds))


@pytest.mark.parametrize("rounds", [0, 2])
def test_weights_are_those_of_the_relations_that_have_some(rounds):
    """Weighted relations keep edges with the slow reference's probabilities; the weights do not change unweighted relations."""
    generator = np.random.default_rng(3)
    relations = {("a", "r", "p"): 60, ("b", "r", "p"): 50, ("b", "s", "p"): 40}
    numbers = {"p": 5, "a": 20, "b": 15}
    edges = {(u, r, v): (generator.integers(0, numbers[u], n), generator.integers(0, 5, n)) for (u, r, v), n in relations.items()}
    weights = {
        key: 10 ** generator.uniform(-2, 2, relations[key]) * (generator.random(relations[key]) < 0.8) for key in list(relations)[:2]
    }
    graph = HeteroGraph.from_edges(numbers, edges, weights=weights)
    seeds, plain = {"p": np.arange(5)}, HeteroLaborSampler([4], importance_rounds=rounds)
    for batch in range(30):
        blocks = HeteroLaborSampler([4], importance_rounds=rounds, weighted=True).sample(graph, seeds, seed=5, batch=batch).blocks[0]
        for relation in weights:
            columns, kind = graph.relations[relation], list(numbers).index(relation[0])
            of = [[(int(columns.indices[e]), e) for e in range(columns.indptr[v], columns.indptr[v + 1])] for v in range(5)]
            distribution = labor_reference.weighted_probabilities(of, columns.weights.astype(float), 4, rounds)
            probabilities = {e: p for column in distribution for e, p in column.items()}
            drawn = {e: (neighbor.words((5, 0, batch, 16 * kind), int(columns.indices[e]), 1)[0] + 0.5) / 2**32 for e in probabilities}
            assert blocks[relation].edge_ids.tolist() == sorted(e for e, p in probabilities.items() if drawn[e] < p)
            inverse = columns.weights[blocks[relation].edge_ids] / [probabilities[e] for e in blocks[relation].edge_ids.tolist()]
            np.testing.assert_allclose(blocks[relation].weights, inverse, rtol=1e-4)
        without = plain.sample(graph, seeds, seed=5, batch=batch).blocks[0]["b", "s", "p"]
        assert blocks["b", "s", "p"].edge_ids.tolist() == without.edge_ids.tolist()


@pytest.mark.parametrize("options", [{}, {"importance_rounds": 2}, {"weighted": True, "importance_rounds": 1}], ids=str)
def test_one_relation_is_labor(graph, options):
    relation, seeds = ("v", "to", "v"), np.arange(0, 190, 7)
    weights = np.random.default_rng(1).random(graph.num_edges)
    hetero_graph = HeteroGraph({"v": graph.num_nodes}, {relation: (graph.indptr, graph.indices)}, weights={relation: weights})
    ours = HeteroLaborSampler([4, -1, 3], "v", **options).sample(hetero_graph, seeds, seed=9, batch=5)
    theirs = LaborSampler([4, -1, 3], **options).sample(Graph(graph.indptr, graph.indices, weights=weights), seeds, seed=9, batch=5)
    assert ours.node_ids["v"].tolist() == theirs.node_ids.tolist()
    for hop, block in zip(ours.blocks, theirs.blocks, strict=True):
        found = hop[relation].arrays()
        assert {n: (a.dtype, a.tolist()) for n, a in found.items()} == {n: (a.dtype, a.tolist()) for n, a in block.arrays().items()}


def test_each_relation_is_estimated_without_bias_from_shared_sources():
    """Two relations with the same edges keep the same sources, and the mean of their weighted sums over many batches is exact."""
    edges = (np.arange(12), np.zeros(12, int))
    graph = HeteroGraph.from_edges({"a": 12, "p": 1}, {("a", "of", "p"): edges, ("a", "by", "p"): edges})
    values, number, sums, kept = np.arange(12.0), 2000, [], np.zeros(12)
    sampler = HeteroLaborSampler([3], "p")
    for batch in range(number):
        hop = sampler.sample(graph, np.array([0]), batch=batch).blocks[0]
        one, other = (hop["a", name, "p"] for name in ("of", "by"))
        assert one.edge_ids.tolist() == other.edge_ids.tolist()
        sums.append(float(one.weights @ values[one.edge_ids]))
        kept[one.edge_ids] += 1
    assert abs(np.mean(sums) - values.sum()) < 5 * np.std(sums) / np.sqrt(number)
    # Each edge is kept or not by itself, with a probability of 3 / 12: the sum of squares of 12 standard normals.
    assert ((kept - number / 4) ** 2 / (number * 3 / 16)).sum() < 45


def test_weights_go_to_pyg():
    rng = np.random.default_rng(0)
    num_nodes = {"a": 50, "b": 30, "c": 20}
    edges = {r: (rng.integers(0, num_nodes[r[0]], 300), rng.integers(0, num_nodes[r[2]], 300)) for r in TRIPLES}
    sampler = HeteroLaborSampler({"a:r:a": [3, 0]}, "a", default=[2, 2])
    batch = sampler.sample(HeteroGraph.from_edges(num_nodes, edges), np.arange(8))
    assert all((store.edge_weight >= 0.5).all() for store in batch.to_pyg().edge_stores)


def test_the_text_of_a_sampler_has_its_options():
    assert repr(HeteroLaborSampler([1], "a", importance_rounds=2, weighted=True)).endswith("importance_rounds=2, weighted=True)")


PAIR = HeteroGraph.from_edges({"a": 2}, {("a", "r", "a"): ([0], [1])})


MISTAKES = {
    "hetero LABOR on a GPU": Mistake(
        lambda: HeteroLaborSampler([1], "a").sample(PAIR, np.array([0]), device="cuda"),
        value='device="cuda"',
        rule="HeteroLaborSampler no kernels CUDA",
        remedy='device="cpu"',
    ),
    "weighted and no weights": Mistake(
        lambda: HeteroLaborSampler([1], "a", weighted=True).sample(PAIR, np.array([0])),
        value="weighted=True",
        rule="no relation weights",
        remedy="HeteroGraph from_edges unweighted",
    ),
    "a negative number of rounds": Mistake(
        lambda: HeteroLaborSampler([1], importance_rounds=-1), value="-1", rule="importance_rounds must", remedy="[0, 100]"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
