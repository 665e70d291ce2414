"""HeteroTemporalSampler: bit-identical to its reference and to TemporalSampler for a single relation; never an edge from the future."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import hetero as reference
from scipy.stats import chisquare

import hoptrain.samplers.buffers.hop as hop
from hoptrain.engine import Graph, HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HeteroTemporalSampler, SampleLoader, TemporalSampler, Workspace
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.wrappers.timed import TimedSeeds

TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("b", "s", "a")]


def as_lists(batch):
    hops = [
        {relation: (b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for relation, b in own.items()}
        for own in reversed(batch.blocks)
    ]
    nodes = {name: list(zip(batch.extra[f"trees.{name}"].tolist(), ids.tolist(), strict=True)) for name, ids in batch.node_ids.items()}
    return hops, nodes


@st.composite
def problems(draw):
    """Draw a graph of two types, some relations without times, repeated seeds of both types, and time bounds inside and outside the range."""
    num_nodes = {name: draw(st.integers(1, 8)) for name in "ab"}
    edges, times = {}, {}
    for relation in draw(st.lists(st.sampled_from(TRIPLES), min_size=1, unique=True)):
        edge = st.tuples(st.integers(0, num_nodes[relation[0]] - 1), st.integers(0, num_nodes[relation[2]] - 1), st.integers(-3, 9))
        own = np.array(draw(st.lists(edge, max_size=30)), np.int64).reshape(-1, 3).T
        edges[relation] = own[0], own[1]
        if not times or draw(st.booleans()):
            times[relation] = own[2]
    seed = st.sampled_from("ab").flatmap(lambda kind: st.tuples(st.just(kind), st.integers(0, num_nodes[kind] - 1)))
    strategy, hops = draw(st.sampled_from(["uniform", "recent"])), draw(st.integers(1, 3))
    return {
        "graph": HeteroGraph.from_edges(num_nodes, edges, times=times),
        "bulk": [
            draw(st.lists(st.tuples(seed, st.integers(-5, 11)), min_size=1, max_size=6)) for _ in range(draw(st.sampled_from([1, 3])))
        ],
        "fanouts": {relation: draw(st.lists(st.sampled_from([-1, 0, 1, 2, 5, 0.4]), min_size=hops, max_size=hops)) for relation in edges},
        "strategy": strategy,
        "replace": strategy == "uniform" and draw(st.booleans()),
    }


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=60)
@given(problem=problems(), threads=st.sampled_from([1, 2]), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
def test_any_problem(problem, threads, address):
    """Batches equal the reference's, and no edge is later than the seed of its tree, which the test checks independently."""
    graph, (epoch, first), fanouts = problem["graph"], address, problem["fanouts"]
    options = problem["strategy"], problem["replace"]
    sampler = HeteroTemporalSampler(fanouts, None, None, *options)
    workspace, key = Workspace(threads), (2**64 - 3, epoch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hop, "EXACT_COUNT", 8)
        for _ in range(2):  # the second time with used scratch buffers
            for i, queries in enumerate(problem["bulk"]):
                seeds, times = zip(*queries, strict=True)
                expected = reference.trees(graph, seeds, times, fanouts, *options, (*key, first + i))
                items = np.concatenate([graph.numbered({kind: [v]}) for kind, v in seeds])
                place = {"seed": key[0], "epoch": epoch, "batch": first + i, "workspace": workspace}
                batch = sampler.sample(graph, items, times=np.array(times), **place)
                check_batch(batch, sampler, graph, items)
                assert as_lists(batch) == expected
                assert_nothing_from_the_future(graph, batch, np.array(times))
                timed = TimedSeeds(sampler).sample(graph, np.concatenate([items, times]), **place)
                assert as_lists(timed) == expected


def assert_nothing_from_the_future(graph, batch, times):
    for relation, block in batch.blocks[0].items():
        src, dst = block.edge_index().numpy()
        trees = [batch.extra[f"trees.{kind}"] for kind in (relation[0], relation[2])]
        assert (trees[0][src] == trees[1][dst]).all()
        columns = graph.relations[relation]
        if columns.times is not None:
            assert (columns.times[block.edge_ids] <= times[trees[1][dst]]).all()


@pytest.fixture(scope="module")
def timed(graph):
    return Graph(graph.indptr, graph.indices, times=np.random.default_rng(3).integers(0, 1000, graph.num_edges))


@pytest.mark.parametrize("options", [{}, {"strategy": "recent"}, {"replace": True}])
def test_one_relation_is_temporal_sampling(timed, options):
    relation, seeds, times = ("v", "to", "v"), np.arange(0, 190, 7), np.arange(0, 190, 7) * 5
    hetero_graph = HeteroGraph({"v": timed.num_nodes}, {relation: (timed.indptr, timed.indices)}, times={relation: timed.times})
    ours = HeteroTemporalSampler([4, -1, 3], "v", **options).sample(hetero_graph, seeds, times=times, seed=9, batch=5)
    theirs = TemporalSampler([4, -1, 3], **options).sample(timed, seeds, times=times, seed=9, batch=5)
    assert ours.node_ids["v"].tolist() == theirs.node_ids.tolist()
    assert ours.extra["trees.v"].tolist() == theirs.extra["trees"].tolist()
    for hetero_hop, block in zip(ours.blocks, theirs.blocks, strict=True):
        found = hetero_hop[relation].arrays()
        assert {n: (a.dtype, a.tolist()) for n, a in found.items()} == {n: (a.dtype, a.tolist()) for n, a in block.arrays().items()}


def hub(times):
    """Return a paper with twelve authors, and twelve topics without times."""
    edges = (np.arange(12), np.zeros(12, int))
    relations = {("author", "of", "paper"): edges, ("topic", "of", "paper"): edges}
    return HeteroGraph.from_edges({"author": 12, "topic": 12, "paper": 1}, relations, times={("author", "of", "paper"): times})


def test_each_admitted_edge_is_as_likely_as_any_other():
    graph, sampler = hub(np.arange(12)), HeteroTemporalSampler([3], "paper", {"paper": [7]})
    found = np.zeros((2, 12))
    for number in range(1500):
        block = sampler.sample(graph, np.array([0]), batch=number).blocks[0]
        for row, kind in zip(found, ("author", "topic"), strict=True):
            row[block[kind, "of", "paper"].edge_ids] += 1
    assert found[0, 8:].sum() == 0
    # Without replacement, counts vary less than multinomial ones, so the test is conservative.
    assert chisquare(found[0, :8]).pvalue > 1e-4
    assert chisquare(found[1]).pvalue > 1e-4


def test_recent_ones_are_the_last_and_those_without_times_are_drawn():
    graph = hub(np.arange(12)[::-1].copy())
    sampler = HeteroTemporalSampler([2], "paper", {"paper": [7]}, strategy="recent")
    blocks = [sampler.sample(graph, np.array([0]), batch=number).blocks[0] for number in range(9)]
    assert all(block["author", "of", "paper"].edge_ids.tolist() == [5, 4] for block in blocks)  # the edges with times 6 and 7
    assert len({tuple(block["topic", "of", "paper"].edge_ids) for block in blocks}) > 1


def test_trees_at_one_time():
    """Two seeds of the same node and time have two trees with separate nodes, as with PyG's ``disjoint=True``."""
    edges = (np.array([0, 1]), np.array([0, 0]))
    graph = HeteroGraph.from_edges({"a": 2, "p": 1}, {("a", "of", "p"): edges}, times={("a", "of", "p"): [0, 0]})
    batch = HeteroTemporalSampler([-1], "p").sample(graph, np.array([0, 0]), times=[0, 0])
    assert batch.extra["trees.a"].tolist() == [0, 0, 1, 1]
    data = batch.to_pyg()
    assert data["a"].batch.tolist() == [0, 0, 1, 1]
    assert data["p"].batch.tolist() == data["p"].n_id.add(1).cumsum(0).sub(1).tolist() == [0, 1]
    assert data.seed_time.tolist() == [0, 0]


def test_a_graph_without_times_is_not_trained_on_in_silence():
    """A graph without times is rejected, since its batches could contain edges from the future."""
    graph = HeteroGraph({"paper": 3}, {("paper", "cites", "paper"): (np.array([0, 2, 2, 2]), np.array([1, 2]))})
    for sampler in (HeteroTemporalSampler([2], "paper"), HeteroTemporalSampler([2], "paper", {"paper": [1, 2, 3]})):
        with refused("times", "no relation graph HeteroTemporalSampler", "HeteroGraph time_attr from_pyg HeteroSampler"):
            sampler.prepare(graph, np.arange(3))
    seeds, times = np.arange(3), np.array([1, 2, 3])
    for draw in (
        lambda: HeteroTemporalSampler([2], "paper").sample(graph, seeds, times=times),
        lambda: HeteroTemporalSampler([2], "paper").sample(graph, seeds),
        lambda: TimedSeeds(HeteroTemporalSampler([2], "paper")).sample(graph, np.concatenate([seeds, times])),
        lambda: SampleLoader(HeteroDataset(graph=graph, seed_type="paper"), HeteroTemporalSampler([2], "paper"), split=seeds, batch_size=3),
    ):
        with refused("times", "no relation graph HeteroTemporalSampler", "HeteroGraph time_attr from_pyg HeteroSampler"):
            draw()


def sampled(**options):
    return HeteroTemporalSampler([1], "paper").sample(hub(np.arange(12)), np.array([0]), **options)


MISTAKES = {
    "seeds without times": Mistake(
        lambda: sampled(), value="'paper'", rule="seeds no times", remedy="HeteroTemporalSampler seed_times sample"
    ),
    "times of too many seeds": Mistake(lambda: sampled(times=[1, 2]), value="(2,)", rule="times int64", remedy="one each seed"),
    "an unknown strategy": Mistake(
        lambda: HeteroTemporalSampler([1], "paper", strategy="last"), value="'last'", rule="strategy must", remedy="uniform recent"
    ),
    "times on a GPU": Mistake(
        lambda: sampled(device="cuda"), value='device="cuda"', rule="HeteroTemporalSampler no kernels CUDA", remedy='device="cpu"'
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
