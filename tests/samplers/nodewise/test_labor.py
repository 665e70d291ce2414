"""LaborSampler: bit-identical to a slow reference, with the paper's probabilities."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from cases.relabelling import relabelled_by
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import labor as reference

import hoptrain.samplers.nodewise.labor as labor
from hoptrain.engine import Graph
from hoptrain.samplers import HeteroLaborSampler, LaborSampler, NeighborSampler, Workspace


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src, b.weights.tolist()) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


@st.composite
def problems(draw):
    """Draw a graph with hubs, parallel edges, self loops and isolated nodes, seeds, and fanouts near its degrees."""
    num_nodes = draw(st.integers(1, 30))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, st.integers(0, min(3, num_nodes - 1)) | node), max_size=100))
    graph = Graph.from_edges(*(np.array([edge[i] for edge in edges], np.int64) for i in (0, 1)), num_nodes)
    degree = int(graph.in_degrees().max())
    fanout = st.sampled_from([-1, 1, max(1, degree - 1), max(1, degree), degree + 1]) | st.integers(1, 9)
    bulk = [draw(st.lists(node, min_size=1, max_size=6, unique=True)) for _ in range(draw(st.sampled_from([1, 3])))]
    rounds = draw(st.integers(0, 3))
    fanout = fanout if rounds else fanout | st.sampled_from([0.1, 0.5, 1.0])
    return graph, bulk, draw(st.lists(fanout, min_size=1, max_size=3)), rounds


LONE = Graph.from_edges([0, 0], [0, 0])


@settings(max_examples=40)
@given(
    problem=problems(), threads=st.sampled_from([1, 2]), hashed=st.booleans(), words_ahead=st.booleans(), address=st.integers(0, 2**20 - 1)
)
@example(problem=(LONE, [[0]], [1, 5], 0), threads=1, hashed=False, words_ahead=False, address=0)
@example(problem=(LONE, [[0]], [1, 5], 2), threads=2, hashed=True, words_ahead=True, address=1)
@example(problem=(Graph.from_edges([], [], 2), [[1, 0]], [-1, 3], 1), threads=1, hashed=False, words_ahead=True, address=1)
def test_any_problem_in_any_variant(problem, threads, hashed, words_ahead, address):
    graph, bulk, fanouts, rounds = problem
    sampler = LaborSampler(fanouts, rounds)
    expected = [reference.batch(graph, seeds, fanouts, rounds, 2**64 - 3, address, address + i) for i, seeds in enumerate(bulk)]
    with relabelled_by(hashed) as patch:
        patch.setattr(labor, "EDGES_PER_WORD", 0 if words_ahead else 1 << 20)
        patch.setattr(labor, "MIN_CAPACITY", 1)
        scratch = Workspace(threads)
        for _ in range(2):  # the second time with used scratch buffers
            sampled = sampler.sample_bulk(graph, bulk, seed=2**64 - 3, epoch=address, first_batch=address, workspace=scratch)
            assert [as_lists(batch) for batch in sampled] == expected
        alone = sampler.sample(graph, bulk[0], seed=2**64 - 3, epoch=address, batch=address, workspace=scratch)
        assert as_lists(alone) == expected[0]


@pytest.mark.parametrize("rounds", [0, 1])
def test_columns_that_are_longer_than_the_lanes(rounds):
    """Batches equal the reference's for columns longer than the SIMD lanes, and for short columns that fill the lanes together."""
    rng = np.random.default_rng(0)
    degrees = [1, 511, 512, 513, 3000, 2, 170, 170, 170, 170]
    dst = np.repeat(np.arange(len(degrees)), degrees)
    graph = Graph.from_edges(rng.integers(0, 2000, len(dst)), dst, 2000)
    seeds = np.arange(len(degrees) + 1)
    batch = LaborSampler([40, 7], rounds).sample(graph, seeds, seed=9)
    assert as_lists(batch) == reference.batch(graph, seeds.tolist(), [40, 7], rounds, 9, 0, 0)


# The distribution


def two_destinations():
    """Return a graph in which node 0 has the in-neighbours 2 to 21, and node 1 shares 12 to 21; node 12 occurs twice in the column of 1."""
    src = np.r_[np.arange(2, 22), np.arange(12, 22), 12]
    return Graph.from_edges(src, np.r_[np.zeros(20, int), np.ones(11, int)], 22)


def inclusions(graph, sampler, batches):
    """Return whether each edge was sampled, and its weight or 0, both with shape (batches, E)."""
    kept, weights = np.zeros((batches, graph.num_edges), bool), np.zeros((batches, graph.num_edges))
    scratch = Workspace()
    for i in range(batches):
        block = sampler.sample(graph, np.array([0, 1]), seed=3, batch=i, workspace=scratch).blocks[0]
        kept[i, block.edge_ids] = True
        weights[i, block.edge_ids] = block.weights
    return kept, weights


def test_labor_0_keeps_edges_with_fanout_over_degree():
    graph, batches = two_destinations(), 3000
    kept, weights = inclusions(graph, LaborSampler([4]), batches)
    share = np.r_[np.full(20, 4 / 20), np.full(11, 4 / 11)]
    z = (kept.sum(0) - batches * share) / np.sqrt(batches * share * (1 - share))
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(weights[kept], np.broadcast_to(1 / share, kept.shape)[kept], rtol=1e-6)


def test_destinations_share_the_random_numbers_of_their_sources():
    """A source that is kept for the destination with the smaller probability is also kept for the other destination.

    Parallel edges from a source are kept together.
    """
    kept, _ = inclusions(two_destinations(), LaborSampler([4]), 500)
    of_both, of_second = (
        kept[:, 10:20],
        kept[:, 21:31],
    )  # sources 12 to 21 of node 0; the second parallel edge from 12, and 13 to 21, of node 1
    assert (kept[:, 20] == kept[:, 21]).all()
    assert (of_both <= of_second).all()
    assert of_both.sum() < of_second.sum()


def test_importance_solves_the_variance_equation():
    """Over all in-edges of a destination, weights (inverse probabilities) add up to d**2 / fanout."""
    rng = np.random.default_rng(1)
    columns = [rng.choice(60, rng.integers(3, 40), replace=False).tolist() for _ in range(25)]
    thresholds = reference.thresholds_of(columns, range(25), 6, 2)
    for column, of_edges in zip(columns, thresholds, strict=True):
        expected = len(column) if len(column) <= 6 else len(column) ** 2 / 6
        assert sum(2**32 / threshold for threshold in of_edges) == pytest.approx(expected, rel=1e-6)


def test_one_round_gives_a_source_its_largest_factor():
    """With one round, pi_u is the largest fanout / d of u's destinations, or 1 if a destination has d <= fanout."""
    columns = [list(range(10)), list(range(5, 10)), [9]]
    importance = reference.importances_of(columns, range(3), 2, 1)
    assert importance == pytest.approx(dict.fromkeys(range(5), 0.2) | dict.fromkeys(range(5, 9), 0.4) | {9: 1.0})


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_weighted_sums_are_unbiased(rounds):
    """Weighted sums over the in-edges of two destinations are unbiased (z-tests); with rounds > 0, equal weights would fail."""
    graph, batches = two_destinations(), 6000
    values = np.random.default_rng(2).normal(size=22)[graph.indices] + np.arange(31) % 7
    _, weights = inclusions(graph, LaborSampler([4], rounds), batches)
    for column in (slice(0, 20), slice(20, 31)):
        estimates = weights[:, column] @ values[column]
        z = (estimates.mean() - values[column].sum()) / (estimates.std() / np.sqrt(batches))
        assert abs(z) < 4


def test_a_sum_through_two_hops_is_unbiased(graph):
    """The estimate of A A x through two hops is unbiased, which requires independent random numbers of the hops."""
    x = np.random.default_rng(0).random(graph.num_nodes)
    seed, batches, scratch = np.array([5]), 3000, Workspace()
    once = np.add.reduceat(np.r_[x[graph.indices], 0], graph.indptr[:-1]) * (graph.in_degrees() > 0)
    exact = once[graph.indices[graph.indptr[5] : graph.indptr[6]]].sum()
    estimates = np.zeros(batches)
    for i in range(batches):
        sampled = LaborSampler([3, 3], 1).sample(graph, seed, batch=i, workspace=scratch)
        value = x[sampled.node_ids]
        for block in sampled.blocks:
            owner = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
            value = np.bincount(owner, block.weights * value[block.indices], minlength=block.num_dst)
        estimates[i] = value[0]
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / np.sqrt(batches)


def test_fewer_sources_than_by_neighbour_sampling(graph):
    """More rounds sample fewer sources, and LABOR samples fewer than neighbour sampling."""
    seeds = np.arange(100)

    def num_nodes(sampler):
        return np.mean([len(sampler.sample(graph, seeds, batch=i).node_ids) for i in range(10)])

    neighbor, labor_0, labor_3 = num_nodes(NeighborSampler([2])), num_nodes(LaborSampler([2])), num_nodes(LaborSampler([2], 3))
    assert labor_3 < labor_0 < 0.9 * neighbor


MISTAKES = {
    "no fanouts": Mistake(lambda: LaborSampler([]), value="[]", rule="fanouts", remedy="one number each hop [15, 10]"),
    "a fanout of 0": Mistake(lambda: LaborSampler([3, 0]), value="fanout 0", rule="[3, 0] hop edges share", remedy="1 2147483647 -1 0.5"),
    "a negative number of rounds": Mistake(
        lambda: LaborSampler([3], importance_rounds=-1), value="-1", rule="importance_rounds must", remedy="[0, 100]"
    ),
    "a share with rounds": Mistake(
        lambda: LaborSampler([3, 0.5], importance_rounds=1),
        value="fanout 0.5",
        rule="importance_rounds=1 share degree LABOR-0",
        remedy="number edges leave out",
    ),
    "a share by weight": Mistake(
        lambda: HeteroLaborSampler([0.5], weighted=True),
        value="fanout 0.5",
        rule="weighted=True share degree LABOR-0",
        remedy="number edges leave out",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
