"""HGTSampler: bit-identical to its reference, nodes drawn by squared budgets, and all edges between sampled nodes present."""

from itertools import permutations

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import hgt as reference
from scipy.stats import chisquare

from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HGTSampler, Workspace
from hoptrain.samplers.loader.check_batch import check_batch

TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("c", "r", "b"), ("b", "s", "a")]


def as_lists(batch):
    edges = {relation: (b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist()) for relation, b in batch.blocks[0].items()}
    return edges, {name: ids.tolist() for name, ids in batch.node_ids.items()}


@st.composite
def problems(draw):
    """Draw a graph of up to three types with parallel edges and self loops, seeds of one or two types, and numbers of draws near the limits."""
    num_nodes = {name: draw(st.integers(1, 12)) for name in "abc"}
    edges = {}
    for relation in draw(st.lists(st.sampled_from(TRIPLES), min_size=1, unique=True)):
        pair = st.tuples(st.integers(0, num_nodes[relation[0]] - 1), st.integers(0, num_nodes[relation[2]] - 1))
        edges[relation] = tuple(np.array(draw(st.lists(pair, max_size=40)), np.int64).reshape(-1, 2).T)
    kinds, hops = draw(st.sampled_from([["a"], ["a", "b"]])), draw(st.integers(1, 3))
    return {
        "graph": HeteroGraph.from_edges(num_nodes, edges),
        "num_samples": {name: draw(st.lists(st.sampled_from([0, 1, 2, 3, 50]), min_size=hops, max_size=hops)) for name in num_nodes},
        "bulk": [
            {k: draw(st.lists(st.integers(0, num_nodes[k] - 1), min_size=1, max_size=4, unique=True)) for k in kinds}
            for _ in range(draw(st.sampled_from([1, 5])))
        ],
    }


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=80)
@given(problem=problems(), threads=st.sampled_from([1, 2]), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
def test_any_problem(problem, threads, address):
    graph, (epoch, first), sampler = problem["graph"], address, HGTSampler(problem["num_samples"])
    expected = [
        reference.batch(graph, seeds, problem["num_samples"], (2**64 - 3, epoch, first + i)) for i, seeds in enumerate(problem["bulk"])
    ]
    workspace, bulk = Workspace(threads), [graph.numbered(seeds) for seeds in problem["bulk"]]
    for _ in range(2):  # the second time with used scratch buffers
        batches = sampler.sample_bulk(graph, bulk, seed=2**64 - 3, epoch=epoch, first_batch=first, workspace=workspace)
        assert [as_lists(batch) for batch in batches] == expected
        for batch, items in zip(batches, bulk, strict=True):
            check_batch(batch, sampler, graph, items)


def star():
    """Return a graph of three seeds and five sources whose budgets are 1.5, 1, 0.75, 0.5 and 0.25."""
    columns = [[0, 1, 1, 2, 3, 4, 0, 2], [0, 1], [0, 0, 0, 1, 2, 2, 3, 3]]
    edges = np.array([(u, v) for v, column in enumerate(columns) for u in column])
    return HeteroGraph.from_edges({"u": 5, "v": 3}, {("u", "to", "v"): (edges[:, 0], edges[:, 1])})


def test_nodes_come_by_the_squares_of_their_budgets():
    """Ordered pairs of nodes are drawn with the distribution of squared budgets, which the test computes."""
    graph, number = star(), 4000
    budgets = np.zeros(5)
    columns = graph.relations["u", "to", "v"]
    for v in range(3):
        column = columns.indices[columns.indptr[v] : columns.indptr[v + 1]]
        np.add.at(budgets, column, 1 / len(column))
    squares = budgets**2 / (budgets**2).sum()
    distribution = {(i, j): squares[i] * squares[j] / (1 - squares[i]) for i, j in permutations(range(5), 2)}
    found = dict.fromkeys(distribution, 0)
    sampler = HGTSampler([2], "v")
    for batch in range(number):
        found[tuple(sampler.sample(graph, np.arange(3), batch=batch).node_ids["u"].tolist())] += 1
    pairs = [pair for pair in distribution if distribution[pair] * number >= 5]
    rare = [pair for pair in distribution if pair not in pairs]
    counts = [found[pair] for pair in pairs] + [sum(found[pair] for pair in rare)]
    expected = [distribution[pair] * number for pair in pairs] + [sum(distribution[pair] for pair in rare) * number]
    kept = len(counts) if expected[-1] >= 5 else len(counts) - 1
    expected = np.array(expected[:kept]) * (sum(counts[:kept]) / sum(expected[:kept]))
    assert chisquare(counts[:kept], expected).pvalue > 1e-4


def test_draws_of_hops_and_types_differ():
    rng = np.random.default_rng(1)
    edges = {("a", "to", "s"): (np.tile(np.arange(50), 2), rng.integers(0, 2, 100))}
    edges["b", "to", "s"] = edges["a", "to", "s"]
    graph = HeteroGraph.from_edges({"a": 50, "b": 50, "s": 2}, edges)
    nodes = HGTSampler([5, 5], "s").sample(graph, np.arange(2)).node_ids
    assert nodes["a"].tolist() != nodes["b"].tolist()
    assert len(set(nodes["a"].tolist())) == 10


def test_blocks_for_layers():
    """With three layers, the last block leads to the seeds only, and the other blocks to all sampled nodes."""
    ring = HeteroGraph.from_edges({"v": 20}, {("v", "to", "v"): (np.arange(20), np.roll(np.arange(20), 1))})
    batch = HGTSampler([2, 2], num_layers=3).sample(ring, {"v": [7, 0]})
    assert [block["v", "to", "v"].num_dst for block in batch.blocks] == [6, 6, 2]
    assert batch.to_pyg()["v", "to", "v"].edge_index.shape[1] == batch.blocks[0]["v", "to", "v"].num_edges == 4


def sampled(seeds, num_samples=(1,), seed_type="v", **options):
    return HGTSampler(num_samples, seed_type).sample(star(), np.array(seeds), **options)


MISTAKES = {
    "no hops": Mistake(lambda: HGTSampler([]), value="[]", rule="num_samples", remedy="1 16 each hop"),
    "types with different numbers of hops": Mistake(
        lambda: HGTSampler({"a": [1], "b": [1, 2]}), value="{'a': [1], 'b': [1, 2]}", rule="num_samples", remedy="same number all types"
    ),
    "a negative number of nodes": Mistake(lambda: HGTSampler([-1]), value="-1", rule="num_samples hop 0 nodes more"),
    "no layers": Mistake(lambda: HGTSampler([1], "a", 0), value="num_layers is 0", rule="model least one layer", remedy="1 more"),
    "a share of the nodes": Mistake(lambda: HGTSampler([0.5]), value="[0.5]", rule="num_samples", remedy="whole number each hop [10, 5]"),
    "numbers for some types": Mistake(
        lambda: sampled([0], {"u": [1]}), value="u", rule="num_samples graph's types", remedy="u, v each once"
    ),
    "an unknown seed type": Mistake(lambda: sampled([0], [1], "w"), value="'w'", rule="seed_type graph", remedy="u, v"),
    "a seed given twice": Mistake(lambda: sampled([0, 0]), value="seed 0", rule="given twice", remedy="numpy.unique(seeds)"),
    "nodes of each type on a GPU": Mistake(
        lambda: sampled([0], device="cuda"), value='device="cuda"', rule="HGTSampler no kernels CUDA", remedy='device="cpu"'
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
