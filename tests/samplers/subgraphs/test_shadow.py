"""ShaDow: the node set of each seed, the disjoint union, and personalised PageRank."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

from hoptrain.engine import Graph
from hoptrain.kernels.cpu.subgraphs import shadow as kernels
from hoptrain.samplers import ShadowPPRSampler, ShadowSampler


def expected(graph, sets):
    return len(sets), *reference.disjoint_union(graph, sets), None, None


@settings(max_examples=60)
@given(
    graph=graphs(), depth=st.integers(1, 3), fanout=st.integers(1, 6), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2), data=st.data()
)
def test_neighbour_sets_of_any_graph(graph, depth, fanout, address, data):
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=8, unique=True))
    epoch, batch = address
    columns = reference.columns_of(graph)
    sets = [reference.neighbor_set(columns, v, depth, fanout, (2**64 - 3, epoch, batch)) for v in seeds]
    sampled = ShadowSampler(depth, fanout).sample(graph, np.array(seeds), seed=2**64 - 3, epoch=epoch, batch=batch)
    assert as_lists(sampled) == expected(graph, sets)


@settings(max_examples=60)
@given(
    graph=graphs(),
    top=st.integers(1, 12),
    alpha=st.sampled_from([0.05, 0.15, 0.9]),
    epsilon=st.sampled_from([1e-3, 0.02, 0.3]),
    data=st.data(),
)
def test_pagerank_sets_of_any_graph(graph, top, alpha, epsilon, data):
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=8, unique=True))
    columns = reference.columns_of(graph)
    sets = [reference.pagerank_set(columns, v, top, round(alpha * 2**16), round(epsilon * 2**40)) for v in seeds]
    assert as_lists(ShadowPPRSampler(top, alpha, epsilon).sample(graph, np.array(seeds))) == expected(graph, sets)


def test_many_seeds_of_a_graph_with_hubs(graph):
    """Node sets of 200 seeds in a bulk equal the reference's, although they are more than a table of at most 15 stamps can number."""
    seeds = np.random.default_rng(0).permutation(200)
    columns = reference.columns_of(graph)
    sets = [reference.neighbor_set(columns, v, 2, 5, (1, 0, 0)) for v in seeds.tolist()]
    assert as_lists(ShadowSampler(2, 5).sample(graph, seeds, seed=1)) == expected(graph, sets)


def test_stamps_that_run_out_clear_the_table():
    own = kernels.Own(np.zeros(5, np.int32), np.zeros(16, np.uint32), 4, 28, np.zeros(1, np.int64))
    stamps = []
    for _ in range(40):
        table = kernels.next_table(own)
        assert not (own.entries == table.stamp).any()
        own.entries[:] = table.stamp
        stamps.append(int(table.stamp) >> 28)
    assert stamps[:17] == [*range(1, 16), 1, 2]


# The distributions


def test_push_finds_personalised_pagerank():
    """The push algorithm's scores and residues account for all walks, and the scores' error is within the bound for the exact PageRank."""
    graph, alpha, epsilon = grid(6), 0.2, 1e-3
    columns, start = reference.columns_of(graph), 14
    score, residue = reference.push(columns, start, round(alpha * 2**16), round(epsilon * 2**40))
    assert sum(score.values()) + sum(residue.values()) == 2**40
    alpha = round(alpha * 2**16) / 2**16
    step = np.zeros((36, 36))
    for v, column in enumerate(columns):
        step[v, column] = 1 / len(column)
    exact = alpha * np.linalg.inv(np.eye(36) - (1 - alpha) * step)[start]
    for v in range(36):
        assert 0 <= exact[v] - score.get(v, 0) / 2**40 + 1e-10 <= epsilon * len(columns[v])
    assert max(exact[v] - score.get(v, 0) / 2**40 for v in range(36)) > 1e-5  # the result is an approximation


def test_the_top_nodes_are_those_with_the_highest_pagerank():
    """The nodes with the highest personalised PageRank are chosen.

    The seed has 4 edges from node 1, 2 from node 2 and 1 from node 3, whose only source is node 4.
    """
    graph = Graph.from_edges([1, 1, 1, 1, 2, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0, 0, 3, 4])
    for top, others in ((1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (5, [1, 2, 5, 3, 4])):
        batch = ShadowPPRSampler(top, alpha=0.15).sample(graph, np.array([0]))
        exact = {1: 0.85 * 4 / 7, 2: 0.85 * 2 / 7, 3: 0.15 * 0.85 / 7, 4: 0.15 * 0.85**2 / 7, 5: 0.85**3 / 7}
        assert sorted(exact, key=lambda v: -exact[v])[:top] == batch.node_ids[1:].tolist()
        assert top == 3 or batch.node_ids[1:].tolist() == others


def test_walks_that_stand_somewhere_count():
    """Walks at a node that is never pushed count: a hub of degree 300 with a tenth of the walks ranks above nodes with fewer."""
    leaves = np.arange(12, 311)
    src = np.r_[1:11, np.full(10, 11), leaves]  # 0 <- 1 ... 10 <- 11 <- the leaves
    dst = np.r_[np.zeros(10, int), 1:11, np.full(299, 11)]
    sampler = ShadowPPRSampler(11, alpha=0.15, epsilon=0.004)
    others = sampler.sample(Graph.from_edges(src, dst), np.array([0])).node_ids[1:].tolist()
    assert others[0] == 11
    assert sorted(others[1:]) == list(range(1, 11))


def test_neighbour_sets_take_every_subset_equally_often():
    """Each subset of neighbours is drawn with the same frequency: with 3 of 9, each pair is in 3 * 2 / (9 * 8) of the batches."""
    graph, together, batches = Graph.from_edges(np.arange(1, 10), np.zeros(9, int)), np.zeros((10, 10)), 4000
    sampler = ShadowSampler(1, 3)
    for batch in range(batches):
        nodes = sampler.sample(graph, np.array([0]), batch=batch).node_ids
        assert len(nodes) == 4
        together[np.ix_(nodes, nodes)] += 1
    pairs, rate = together[1:, 1:][np.triu_indices(9, 1)], 1 / 12
    assert ((pairs - batches * rate) ** 2).sum() / (batches * rate * (1 - rate)) < 66.6 * 1.2  # 35 degrees of freedom, p = 0.001


def test_a_hop_expands_what_the_one_before_found():
    """Each hop expands the nodes that the previous hop found: from 0 on the path 0 <- 1 <- 2 <- 3 with shortcut 3 -> 1, depth 2 reaches 3."""
    graph = Graph.from_edges([1, 2, 3, 3, 0], [0, 1, 2, 1, 3])
    batch = ShadowSampler(2, 5, num_layers=4).sample(graph, np.array([0]))
    assert batch.node_ids.tolist() == [0, 1, 2, 3]
    assert batch.num_edges == 5
    assert len(batch.blocks) == 4


# Batches and options


def test_subgraphs_do_not_touch():
    """Subgraphs of neighbouring seeds are disjoint: each has its own copy of the other seed, and no edge connects them."""
    graph = grid()
    batch = ShadowSampler(1, 4).sample(graph, np.array([0, 1]))
    src, dst = batch.blocks[0].edge_index().numpy()
    first = {0, *range(2, 6)}
    assert all((s in first) == (d in first) for s, d in zip(src, dst, strict=True))
    assert batch.node_ids.tolist().count(1) == 2
    assert (graph.indices[batch.blocks[0].edge_ids] == batch.node_ids[src]).all()


def test_a_subgraph_does_not_depend_on_the_others(graph):
    alone = ShadowSampler(2, 3).sample(graph, np.array([7]), batch=5).node_ids.tolist()
    batch = ShadowSampler(2, 3).sample(graph, np.array([2, 7, 5]), batch=5)
    together = batch.node_ids.tolist()
    assert any(together[i : i + len(alone) - 1] == alone[1:] for i in range(3, len(together)))


@pytest.mark.parametrize("sampler", [ShadowSampler(2, 4), ShadowPPRSampler(10)], ids=lambda s: type(s).__name__)
def test_batches_are_pure(graph, sampler):
    rng = np.random.default_rng(0)
    check_pure(sampler, graph, [rng.permutation(200)[: 1 + 9 * i] for i in range(5)])


@pytest.mark.parametrize("sampler", [ShadowSampler(2, 4), ShadowPPRSampler(10)], ids=lambda s: type(s).__name__)
def test_through_the_loader(dataset, sampler):
    batches = check_loader(dataset, sampler, 16)
    assert sorted(v for num_seeds, nodes, *_ in batches for v in nodes[:num_seeds]) == dataset.splits["train"].tolist()


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("sampler", [ShadowSampler(2, 5, num_layers=2), ShadowPPRSampler(20, num_layers=2)], ids=lambda s: type(s).__name__)
def test_training(sampler):
    accuracy, loss = fit(sampler, 128)
    assert accuracy > 0.6
    assert loss < 2


MISTAKES = {
    "no depth": Mistake(lambda: ShadowSampler(0), value="depth is 0", rule="num_neighbors 10 whole numbers least 1"),
    **{
        f"{wrong} neighbours": Mistake(
            lambda wrong=wrong: ShadowSampler(2, wrong), value=f"num_neighbors {wrong}", rule="depth 2 whole numbers least 1"
        )
        for wrong in (1.5, -1)
    },
    "subgraphs that could be too large": Mistake(
        lambda: ShadowSampler(6, 10), value="depth is 6", rule="num_neighbors 10 subgraph fewer 1,048,576 nodes", remedy="lower"
    ),
    "subgraphs that could be too deep": Mistake(
        lambda: ShadowSampler(10**9, 1), value="depth is 1000000000", rule="num_neighbors 1 subgraph fewer 1,048,576 nodes", remedy="lower"
    ),
    "a model of no layers": Mistake(lambda: ShadowSampler(num_layers=0), value="0", rule="num_layers model layers", remedy="1 4079"),
    "no nodes beside the seed": Mistake(lambda: ShadowPPRSampler(0), value="0", rule="top subgraph least one node seed"),
    **{
        f"an alpha of {wrong}": Mistake(
            lambda wrong=wrong: ShadowPPRSampler(alpha=wrong), value=str(wrong), rule="alpha probability", remedy="between 0 1"
        )
        for wrong in (0.0, 1.0)
    },
    **{
        f"an epsilon of {wrong}": Mistake(
            lambda wrong=wrong: ShadowPPRSampler(epsilon=wrong), value=str(wrong), rule="epsilon alpha 0.15", remedy="between 6.4e-06 1"
        )
        for wrong in (1e-7, 1.0)
    },
    "a seed given twice": Mistake(
        lambda: ShadowSampler().sample(grid(), np.array([3, 4, 3])), value="seed 3", rule="given twice", remedy="numpy.unique(seeds)"
    ),
    "a seed that the graph has not": Mistake(
        lambda: ShadowSampler().sample(grid(), np.array([36])), value="seed 36", rule="not graph", remedy="0 35"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
