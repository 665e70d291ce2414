"""NeighborSampler is bit-identical to the reference for any threads, bulk, table, expansion, weights and id type."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations
from math import ceil

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from cases.relabelling import relabelled_by
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference import neighbor as reference
from scipy import stats

import hoptrain.samplers.buffers.hop as hop
from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.buffers.alias import build_alias_tables

SHARES = st.sampled_from([1e-12, 0.1, 1 / 3, 0.5, 0.9, 1.0])


def as_lists(batch):
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


@pytest.fixture
def any_sizes(monkeypatch):
    """Let threads share even tiny hops, and count edges first, as for large hops."""
    monkeypatch.setattr(hop, "WORTH_SHARING", 1)
    monkeypatch.setattr(hop, "PART_EDGES", 1)
    monkeypatch.setattr(hop, "EXACT_COUNT", 64)


@st.composite
def problems(draw):
    """Draw a graph with hubs, parallel edges and isolated nodes, seeds, and fanouts near its degrees."""
    num_nodes = draw(st.integers(1, 40))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, st.integers(0, min(3, num_nodes - 1)) | node), max_size=120))
    src, dst = (np.array([edge[i] for edge in edges], np.int64) for i in (0, 1))
    weights = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 1e-30, 1e30]), min_size=len(edges), max_size=len(edges)))
    weights[:1] = weights[:1] if any(weights) else [1.0] * len(weights[:1])  # the weights of a graph must not all be 0
    graph = Graph.from_edges(src, dst, num_nodes, weights=np.array(weights, np.float32))
    degree = int(graph.in_degrees().max())
    fanout = st.sampled_from([-1, 1, max(1, degree - 1), max(1, degree), degree + 1]) | st.integers(1, 9) | SHARES
    return {
        "graph": graph,
        "bulk": [draw(st.lists(node, min_size=1, max_size=6, unique=True)) for _ in range(draw(st.sampled_from([1, 2, 7])))],
        "fanouts": draw(st.lists(fanout, min_size=1, max_size=3)),
        "mode": draw(st.sampled_from(["distinct", "replace", "weighted", "weighted distinct"])),
        "expand": draw(st.sampled_from(["all", "new"])),
    }


def test_every_subset_of_a_share_is_equally_likely():
    """With fanout 0.6, each of the ten subsets of three of five edges is equally likely."""
    graph = Graph.from_edges(range(1, 6), [0] * 5, 6)
    batches = NeighborSampler([0.6]).sample_bulk(graph, [[0]] * 4000, seed=1)
    counts = Counter(tuple(batch.blocks[0].edge_ids.tolist()) for batch in batches)
    assert len(counts) == 10
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3, 0.7, 1.0])
def test_a_share_is_rounded_up_exactly(share):
    """A fraction of the degree is rounded up exactly, even if the product in floating point is just above or below an integer."""
    graph = Graph.from_edges(np.zeros(5050, np.int64), np.repeat(np.arange(100), np.arange(1, 101)))
    counts = np.diff(NeighborSampler([share]).sample(graph, np.arange(100)).blocks[0].indptr)
    assert counts.tolist() == [ceil(Fraction(share).limit_denominator(1000) * degree) for degree in range(1, 101)]


LONE = {
    "graph": Graph.from_edges([0, 0], [0, 0], weights=np.ones(2)),
    "bulk": [[0]],
    "fanouts": [1, 5],
    "mode": "distinct",
    "expand": "all",
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(), threads=st.sampled_from([1, 2]), hashed=st.booleans(), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
@example(problem=LONE, threads=1, hashed=False, address=(0, 0))
@example(problem=LONE | {"mode": "weighted", "expand": "new"}, threads=2, hashed=True, address=(1, 2))
@example(problem=LONE | {"fanouts": [0.5, 1.0, 0.1], "mode": "replace"}, threads=2, hashed=False, address=(1, 2))
@example(problem=LONE | {"mode": "weighted distinct"}, threads=2, hashed=False, address=(1, 2))
def test_any_problem_in_any_variant(problem, threads, hashed, address, any_sizes):
    graph, fanouts, bulk = problem["graph"], problem["fanouts"], problem["bulk"]
    replace, weighted = "distinct" not in problem["mode"], "weighted" in problem["mode"]
    sampler = NeighborSampler(fanouts, replace, weighted, problem["expand"])
    tables = build_alias_tables(graph) if weighted else None
    tables = tables and (*tables, graph.weights)
    epoch, first = address
    expected = [
        reference.batch(graph, seeds, fanouts, replace, 2**64 - 3, epoch, first + i, tables=tables, expand=problem["expand"])
        for i, seeds in enumerate(bulk)
    ]
    with relabelled_by(hashed):
        scratch = Workspace(threads)
        for _ in range(2):  # the second time with used scratch buffers
            sampled = sampler.sample_bulk(
                graph, [np.array(s) for s in bulk], seed=2**64 - 3, epoch=epoch, first_batch=first, workspace=scratch
            )
            assert [as_lists(batch) for batch in sampled] == expected
        alone = sampler.sample(graph, np.array(bulk[0]), seed=2**64 - 3, epoch=epoch, batch=first, workspace=scratch)
        assert as_lists(alone) == expected[0]


@pytest.mark.parametrize(
    "options", [{}, {"replace": True}, {"replace": True, "weighted": True}, {"weighted": True}, {"expand": "new"}], ids=str
)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("number", [1, 7, 64])
def test_bulks_and_threads_change_nothing(graph, number, threads, options, any_sizes):
    rng = np.random.default_rng(number)
    graph = Graph(graph.indptr, graph.indices, weights=rng.random(graph.num_edges))
    sampler, seeds = NeighborSampler([4, 3], **options), [rng.choice(graph.num_nodes, 1 + i % 9, replace=False) for i in range(number)]
    bulk = sampler.sample_bulk(graph, seeds, seed=5, epoch=1, first_batch=100, workspace=Workspace(threads))
    assert [batch.batch for batch in bulk] == list(range(100, 100 + number))
    for i, batch in enumerate(bulk):
        assert as_lists(batch) == as_lists(sampler.sample(graph, seeds[i], seed=5, epoch=1, batch=100 + i))


def test_an_error_in_a_thread_reaches_the_caller(graph):
    seeds = [np.arange(3), np.array([5, 5]), np.arange(4)]
    scratch = Workspace(2)
    with refused("seed 5", "given twice", "numpy.unique(seeds)"):
        NeighborSampler([2]).sample_bulk(graph, seeds, workspace=scratch)
    assert len(NeighborSampler([2]).sample_bulk(graph, seeds[:1], workspace=scratch)) == 1


def test_an_error_while_threads_share_a_hop_reaches_the_caller(graph, any_sizes, monkeypatch):
    def fail(*arguments):
        raise MemoryError("no scratch")

    monkeypatch.setattr(hop.kernels, "draw_hop", fail)
    with refused("scratch", "no", error=MemoryError):
        NeighborSampler([2]).sample(graph, np.arange(3), workspace=Workspace(2))


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_node_with_a_million_neighbours(replace, expand):
    degree = 10**6
    graph = Graph(np.array([0, degree, degree + 1]), np.r_[np.zeros(degree // 2, np.int32), np.ones(degree // 2, np.int32), np.int32(0)])
    batch = NeighborSampler([7, 5], replace, expand=expand).sample(graph, np.array([1]), seed=3)
    assert as_lists(batch) == reference.batch(graph, [1], [7, 5], replace, 3, 0, 0, expand=expand)


@pytest.mark.parametrize("last", [2**31 - 2, 2**31 - 1, 2**31, 2**31 + 5])
def test_ids_on_both_sides_of_2_to_the_31(tmp_path, last):
    """Batches are right for node ids around 2**31.

    Only the last nodes have edges; the offsets are a sparse file, so the graph needs no memory.
    """
    indptr = np.memmap(tmp_path / "indptr", np.uint8, "w+", shape=(last + 2,))
    indptr[last - 1], indptr[last], indptr[last + 1] = 0, 2, 5
    dtype = np.int32 if last + 1 <= 2**31 - 1 else np.int64
    graph = Graph(indptr, np.array([last, 3, last - 1, last, 0], dtype), is_sorted=False, validate=False)
    batch = NeighborSampler([2, -1]).sample(graph, np.array([last]))
    assert batch.node_ids.dtype == dtype
    assert batch.node_ids[0] == last
    src, dst = batch.blocks[0].edge_index().numpy()
    drawn = reference.offsets(3, 2, False, (0, 0, 0, 0), last)
    assert batch.node_ids[batch.blocks[1].indices].tolist() == [[last - 1, last, 0][offset] for offset in drawn]
    assert batch.node_ids[src[dst == 0]].tolist() == [last - 1, last, 0]


# Weights


def test_alias_tables_hold_the_weights():
    """Alias tables give each edge its probability: its own threshold plus the remainders of all entries with the edge as alias."""
    rng = np.random.default_rng(0)
    degrees = [1, 2, 3, 10, 1000, 0, 4]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    weights = rng.random(indptr[-1]) ** 4
    weights[indptr[6] :] = [0, 2, 0, 0]
    graph = Graph(indptr, np.zeros(indptr[-1], np.int32), weights=weights)
    threshold, alias = build_alias_tables(graph)
    for a, b in pairwise(indptr):
        kept = np.where(alias[a:b] == np.arange(b - a), 1.0, threshold[a:b] / 2**32)
        probability = (kept + np.bincount(alias[a:b], weights=1 - kept, minlength=b - a)) / max(b - a, 1)
        np.testing.assert_allclose(probability, weights[a:b] / weights[a:b].sum() if b > a else [], atol=1e-9)
        assert (probability[weights[a:b] == 0] == 0).all()


def test_neighbours_come_as_often_as_their_weights_say():
    weights = np.array([1, 2, 3, 0, 10, 0.5])
    graph = Graph.from_edges(np.arange(1, 7), np.zeros(6, np.int64), weights=weights)
    sampler, counts = NeighborSampler([50], True, True), np.zeros(6)
    for batch in range(400):
        counts += np.bincount(sampler.sample(graph, np.array([0]), batch=batch).blocks[0].edge_ids, minlength=6)
    expected = weights / weights.sum() * 20_000
    assert counts[3] == 0
    positive = weights > 0
    assert ((counts - expected)[positive] ** 2 / expected[positive]).sum() < 18.5  # chi-square, 4 degrees of freedom, p = 0.001


@pytest.mark.parametrize("weights", [[1.0, 2, 3, 0, 10], [1.0, 1, 1, 1, 0], [1e9, 1e6, 1e3, 1, 0]], ids=str)
def test_by_weight_without_replacement_is_successive_sampling(weights):
    """Draws by weight without replacement equal successive sampling: frequencies of ordered triples fit those of an enumeration."""
    weights = np.array(weights)
    graph = Graph.from_edges(np.arange(1, 6), np.zeros(5, np.int64), weights=weights)
    sampler, batches, counts, scratch = NeighborSampler([3], weighted=True), 20_000, {}, Workspace()
    bulk = [np.array([0])] * 1000
    for first in range(0, batches, 1000):
        for batch in sampler.sample_bulk(graph, bulk, first_batch=first, workspace=scratch):
            drawn = tuple(batch.blocks[0].edge_ids.tolist())
            counts[drawn] = counts.get(drawn, 0) + 1
    expected = {}
    for triple in permutations(np.flatnonzero(weights).tolist(), 3):
        left = weights.sum() - np.cumsum(np.r_[0, weights[list(triple[:2])]])
        expected[triple] = batches * np.prod(weights[list(triple)] / left)
    assert set(counts) <= set(expected)
    often = [triple for triple in expected if expected[triple] >= 5]
    chi_square = sum((counts.get(triple, 0) - expected[triple]) ** 2 / expected[triple] for triple in often)
    assert chi_square < stats.chi2.ppf(0.999, max(len(often) - 1, 1))
    assert sum(counts.get(triple, 0) for triple in expected if expected[triple] < 5) < 30


def test_a_draw_from_what_is_left_goes_by_weight():
    """If one edge has nearly all the weight, so that the sampler gives up redrawing it, the second edge is drawn by the other weights, 1 : 2 : 3 : 4."""
    graph = Graph.from_edges(np.arange(1, 6), np.zeros(5, np.int64), weights=np.array([1e30, 1, 2, 3, 4]))
    sampler, counts, scratch = NeighborSampler([2], weighted=True), np.zeros(5), Workspace()
    for batch in sampler.sample_bulk(graph, [np.array([0])] * 4000, workspace=scratch):
        first, second = batch.blocks[0].edge_ids
        assert first == 0
        counts[second] += 1
    expected = np.array([1, 2, 3, 4]) * 400
    assert ((counts[1:] - expected) ** 2 / expected).sum() < stats.chi2.ppf(0.999, 3)


@pytest.mark.parametrize(("fanout", "replace"), [(2, False), (3, False), (-1, False), (-1, True)])
def test_all_edges_by_weight_are_all_that_have_weight(fanout, replace):
    graph = Graph.from_edges([1, 2, 3, 4, 0], [0, 0, 0, 0, 1], weights=np.array([0.0, 2.0, 0.0, 1.0, 0.0]))
    for threads in (1, 2):
        sampler = NeighborSampler([fanout], weighted=True, replace=replace)
        block = sampler.sample(graph, np.array([0, 1]), workspace=Workspace(threads)).blocks[0]
        assert block.indptr.tolist() == [0, 2, 2]
        assert block.edge_ids.tolist() == [1, 3]


def test_a_node_without_any_weight_gives_no_edge():
    graph = Graph.from_edges([1, 2, 0], [0, 0, 1], weights=np.array([0.0, 0.0, 2.0]))
    block = NeighborSampler([3], True, True).sample(graph, np.array([0, 1, 2])).blocks[0]
    assert np.diff(block.indptr).tolist() == [0, 3, 0]


def test_tables_are_made_once_for_a_graph(monkeypatch):
    made = []
    monkeypatch.setattr(
        "hoptrain.samplers.nodewise.neighbor.build_alias_tables", lambda graph: made.append(graph) or build_alias_tables(graph)
    )
    graphs = [Graph.from_edges([0], [0], weights=np.ones(1)) for _ in range(2)]
    sampler = NeighborSampler([2], True, True)
    for graph in (graphs[0], graphs[0], graphs[1], graphs[1]):
        sampler.sample(graph, np.array([0]))
    assert made == graphs


# Pairs


def test_every_pair_is_drawn_as_often_as_any_other():
    """Each pair of neighbours is drawn with the same frequency: with 4 of 9 neighbours, in 4 * 3 / (9 * 8) of the batches."""
    graph = Graph.from_edges(np.arange(1, 10), np.zeros(9, np.int64))
    sampler, seeds, pairs = NeighborSampler([4]), np.array([0]), np.zeros((9, 9))
    batches = 6000
    for batch in range(batches):
        drawn = sampler.sample(graph, seeds, batch=batch).blocks[0].edge_ids
        pairs[np.ix_(drawn, drawn)] += 1
    counts = pairs[np.triu_indices(9, 1)]
    expected = batches / 6
    # Counts of pairs from the same draw depend on each other only weakly; 35 degrees of freedom, p = 0.001.
    assert ((counts - expected) ** 2 / (expected * (1 - 1 / 6))).sum() < 66.6 * 1.3
    assert counts.sum() == batches * 6


def graph_without_weight():
    return Graph.from_edges([0, 1], [1, 0], weights=np.zeros(2))


MISTAKES = {
    **{
        f"weights that are all 0, with replace={replace}": Mistake(
            lambda replace=replace: NeighborSampler([2], weighted=True, replace=replace).sample(graph_without_weight(), [0]),
            value="weighted=True",
            rule="weights all 2 edges 0",
            remedy="above 0",
        )
        for replace in (False, True)
    },
    "weighted and no weights": Mistake(
        lambda graph: NeighborSampler([2], True, True).sample(graph, np.array([0])),
        value="weighted=True",
        rule="graph no weights",
        remedy="Graph.from_edges unweighted",
    ),
    "missing nodes to expand": Mistake(lambda: NeighborSampler([2], expand="old"), value="'old'", rule="expand hop", remedy="all new"),
    "no threads": Mistake(lambda: Workspace(0), value="0", rule="threads call least one"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
