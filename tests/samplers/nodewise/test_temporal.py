"""TemporalSampler: bit-identical to its reference; past edges only, uniform or the latest ones."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pytorch_lightning import Trainer
from reference import temporal as reference

import hoptrain.samplers.buffers.hop as hop
from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import NeighborSampler, TemporalSampler, Workspace
from hoptrain.trainers import NodeClassifier, NodeDataModule


def test_a_window_of_time():
    """A graph without the edges before its begin gives a lower bound; edges keep their ids."""
    graph = Graph.from_edges([1, 2, 3, 4], [0, 0, 0, 0], 5, times=[10, 20, 30, 40])
    window = graph.with_edges(graph.times >= 20)
    batch = TemporalSampler([-1]).sample(window, [0], times=[30])
    assert batch.node_ids.tolist() == [0, 2, 3]
    assert window.ids_of(batch.blocks[0].edge_ids).tolist() == [1, 2]


def as_lists(batch):
    block = batch.blocks[0]
    sizes = [batch.num_seeds, *(b.num_src for b in reversed(batch.blocks))]
    nodes = list(zip(batch.extra["trees"].tolist(), batch.node_ids.tolist(), strict=True))
    return (block.indptr.tolist(), block.indices.tolist(), block.edge_ids.tolist()), sizes, nodes


@st.composite
def problems(draw):
    """Draw a graph with parallel edges, self loops and equal times, repeated seeds, and time bounds inside and outside the range."""
    num_nodes = draw(st.integers(1, 20))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node | st.integers(0, min(2, num_nodes - 1)), st.integers(-3, 9)), max_size=80))
    src, dst, times = (np.array([edge[i] for edge in edges], np.int64) for i in range(3))
    seeds = st.lists(st.tuples(node, st.integers(-5, 11)), min_size=1, max_size=6)
    strategy = draw(st.sampled_from(["uniform", "recent"]))
    return {
        "graph": Graph.from_edges(src, dst, num_nodes, times=times),
        "bulk": [draw(seeds) for _ in range(draw(st.sampled_from([1, 3])))],
        "fanouts": draw(st.lists(st.sampled_from([-1, 1, 2, 5, 0.3, 0.7]), min_size=1, max_size=3)),
        "strategy": strategy,
        "replace": strategy == "uniform" and draw(st.booleans()),
    }


LOOP = {
    "graph": Graph.from_edges([0] * 3, [0] * 3, times=[2, 2, 7]),
    "bulk": [[(0, 2), (0, 1), (0, 9)]],
    "fanouts": [2, 2],
    "strategy": "recent",
    "replace": False,
}


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=60)
@given(problem=problems(), threads=st.sampled_from([1, 2]), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
@example(problem=LOOP, threads=1, address=(0, 0))
@example(problem=LOOP | {"strategy": "uniform", "fanouts": [-1, 3]}, threads=2, address=(5, 9))
def test_any_problem(problem, threads, address):
    """Batches equal the reference's, and no edge is later than the seed of its tree, which the test checks independently."""
    graph, (epoch, first) = problem["graph"], address
    options = problem["strategy"], problem["replace"]
    workspace, sampler = Workspace(threads), TemporalSampler(problem["fanouts"], None, *options)
    for _ in range(2):  # the second time with used scratch buffers
        for i, queries in enumerate(problem["bulk"]):
            seeds, times = ([query[part] for query in queries] for part in (0, 1))
            expected = reference.batch(graph, seeds, times, problem["fanouts"], *options, (2**64 - 3, epoch, first + i))
            batch = sampler.sample(
                graph, np.array(seeds), times=np.array(times), seed=2**64 - 3, epoch=epoch, batch=first + i, workspace=workspace
            )
            assert as_lists(batch) == expected
            assert_nothing_from_the_future(graph, batch, np.array(times))


def assert_nothing_from_the_future(graph, batch, times):
    trees = batch.extra["trees"]
    for block in batch.blocks:
        src, dst = block.edge_index().numpy()
        assert (trees[src] == trees[dst]).all()
        assert (graph.times[block.edge_ids] <= times[trees[dst]]).all()
        assert (graph.indices[block.edge_ids] == batch.node_ids[src]).all()
        assert (np.searchsorted(graph.indptr, block.edge_ids, side="right") - 1 == batch.node_ids[dst]).all()


@pytest.fixture(scope="module")
def timed(graph):
    times = np.random.default_rng(3).integers(0, 1000, graph.num_edges)
    return Graph(graph.indptr, graph.indices, times=times)


@pytest.fixture(scope="module")
def seed_times(timed):
    return np.random.default_rng(4).integers(0, 1200, timed.num_nodes)


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"strategy": "recent"}], ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bulks_and_threads_change_nothing(timed, seed_times, threads, options, monkeypatch):
    monkeypatch.setattr(hop, "EXACT_COUNT", 64)
    sampler, rng = TemporalSampler([4, 3], seed_times, **options), np.random.default_rng(threads)
    seeds = [rng.integers(0, timed.num_nodes, 1 + i % 9) for i in range(20)]
    bulk = sampler.sample_bulk(timed, seeds, seed=5, epoch=1, first_batch=100, workspace=Workspace(threads))
    for i, batch in enumerate(bulk):
        expected = reference.batch(
            timed, seeds[i].tolist(), seed_times[seeds[i]], [4, 3], sampler.strategy, sampler.replace, (5, 1, 100 + i)
        )
        assert as_lists(batch) == expected
        assert batch.extra["seed_times"].tolist() == seed_times[seeds[i]].tolist()


def test_trees_are_drawn_apart(timed):
    """Two trees of the same node and time have the same candidate edges, but separate draws."""
    hub = int(timed.in_degrees().argmax())
    block = TemporalSampler([10]).sample(timed, np.array([hub, hub]), times=np.array([500, 500])).blocks[0]
    first, second = np.split(block.edge_ids, 2)
    assert len(first) == 10
    assert set(first) != set(second)


def test_each_part_of_the_address_changes_the_draws(timed, seed_times):
    def draw(**address):
        return as_lists(TemporalSampler([3, 3], seed_times).sample(timed, np.arange(30), **address))

    assert draw() == draw()
    assert all(draw() != draw(**{name: 1}) for name in ("seed", "epoch", "batch"))


# Distributions

COLUMN = Graph.from_edges(np.arange(1, 13), np.zeros(12, np.int64), 13, times=[5, 1, 9, 3, 3, 8, 2, 7, 3, 6, 4, 9])


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_of_the_past_comes_as_often(replace):
    """Each edge of the past is drawn with the same frequency.

    Of twelve edges nine are in the past, and a batch draws four (chi-square, 8 degrees of freedom, p = 0.001).
    """
    sampler, counts = TemporalSampler([4], None, "uniform", replace), np.zeros(12)
    for number in range(2000):
        batch = sampler.sample(COLUMN, np.array([0]), times=np.array([7]), batch=number)
        counts += np.bincount(batch.blocks[0].edge_ids, minlength=12)
    past = COLUMN.times <= 7
    assert past.sum() == 9
    assert counts[~past].sum() == 0
    assert ((counts[past] - 8000 / 9) ** 2 / (8000 / 9)).sum() < 26.2


def test_the_mean_over_drawn_edges_estimates_that_over_the_past():
    values = np.random.default_rng(5).normal(size=13)
    past = COLUMN.times <= 7
    means = []
    for number in range(3000):
        batch = TemporalSampler([3]).sample(COLUMN, np.array([0]), times=np.array([7]), batch=number)
        means.append(values[batch.node_ids[batch.blocks[0].indices]].mean())
    true, whole = values[COLUMN.indices[past]].mean(), values[COLUMN.indices].mean()
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - true) < 4 * error
    assert abs(np.mean(means) - whole) > 8 * error  # so that a sampler without the time bound would fail


def test_the_most_recent_edges_in_order_of_time():
    batch = TemporalSampler([5], strategy="recent").sample(COLUMN, np.array([0]), times=np.array([6]))
    assert COLUMN.times[batch.blocks[0].edge_ids].tolist() == [3, 3, 4, 5, 6]
    assert batch.blocks[0].edge_ids[:2].tolist() == [4, 8]  # of the three edges at time 3, those with larger ids


# Data and training


def test_times_are_kept_on_disk(timed, tmp_path):
    timed.save(tmp_path / "graph")
    Dataset(name="d", graph=timed).save(tmp_path / "data")
    for opened in (Graph.open(tmp_path / "graph"), Dataset.open(tmp_path / "data").graph, timed.in_memory()):
        assert opened.times.dtype == np.int64
        assert (opened.times == timed.times).all()


def test_times_follow_their_edges():
    graph = Graph.from_edges([2, 1, 0], [0, 0, 1], times=np.array([7, 8, 9], np.int16))
    assert graph.indices.tolist() == [1, 2, 0]
    assert graph.times.tolist() == [8, 7, 9]


@pytest.fixture(scope="module")
def timed_dataset(dataset, timed):
    return Dataset(name="timed", graph=timed, x=dataset.x, y=dataset.y, splits=dataset.splits, num_classes=3)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_two_epochs_of_training(timed_dataset, seed_times, tmp_path):
    timed_dataset.save(tmp_path / "data")
    np.save(tmp_path / "seed_times.npy", seed_times)
    sampler = TemporalSampler([4, 3], str(tmp_path / "seed_times.npy"), "recent")
    module = NodeDataModule(str(tmp_path / "data"), sampler, batch_size=16, num_workers=0)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
    trainer = Trainer(
        max_epochs=2, use_distributed_sampler=False, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(model, module)
    assert trainer.global_step == 16
    assert 0 < trainer.callback_metrics["train_loss"] < 2


def test_pyg_data_keeps_the_trees_apart(timed):
    """In PyG's data, an edge that is in two trees occurs twice, between separate nodes."""
    hub = int(timed.in_degrees().argmax())
    batch = TemporalSampler([-1]).sample(timed, np.array([hub, hub]), times=np.array([2000, 2000]))
    assert batch.to_pyg().edge_index.tolist() == batch.blocks[0].edge_index().tolist()


# Input errors


def test_without_bounds_it_takes_the_neighbours_that_neighbour_sampling_takes(timed):
    """If no edge is later than the time bound, a seed's tree has the edges of neighbour sampling."""
    ours = TemporalSampler([-1, -1]).sample(timed, np.array([7]), times=np.array([10**6]))
    theirs = NeighborSampler([-1, -1], expand="new").sample(timed, np.array([7]))
    assert sorted(ours.blocks[0].edge_ids.tolist()) == sorted(theirs.blocks[0].edge_ids.tolist())
    assert sorted(ours.node_ids.tolist()) == sorted(theirs.node_ids.tolist())


def sampled(graph, seeds, **times):
    return TemporalSampler([2]).sample(graph, seeds, **times)


def file_that_is_no_array(tmp_path):
    (tmp_path / "times.npy").write_text("no array")
    TemporalSampler([2], str(tmp_path / "times.npy"))


def too_many_trees(timed, monkeypatch):
    monkeypatch.setattr("hoptrain.kernels.cpu.nodewise.temporal.MAX_TREES", 2)
    sampled(timed, np.arange(3), times=np.zeros(3, np.int64))


MISTAKES = {
    **{
        f"times of edges as {name}": Mistake(
            lambda times=times: Graph.from_edges([2, 1, 0], [0, 0, 1], times=times),
            value=value,
            rule="times integers int64",
            remedy="3 edges",
        )
        for name, times, value in (
            ("too few numbers", [1, 2], "(2,)"),
            ("reals", [0.5] * 3, "float64"),
            ("uint64", np.zeros(3, np.uint64), "uint64"),
        )
    },
    "no fanouts": Mistake(lambda: TemporalSampler([]), value="[]", rule="fanouts", remedy="one number each hop"),
    "a fanout of 0": Mistake(lambda: TemporalSampler([0]), value="fanout 0", rule="hop edges share", remedy="1 67108863 -1 0.5"),
    "an unknown strategy": Mistake(
        lambda: TemporalSampler([2], strategy="last"), value="'last'", rule="strategy must", remedy="uniform recent"
    ),
    "the latest edges with replacement": Mistake(
        lambda: TemporalSampler([2], strategy="recent", replace=True),
        value="replace=True",
        rule='strategy="recent" latest once',
        remedy="leave replace out",
    ),
    "seed times that are reals": Mistake(
        lambda: TemporalSampler([2], seed_times=[0.5]), value="float64", rule="seed_times integers int64", remedy="each node"
    ),
    "a missing file of seed times": Mistake(
        lambda: TemporalSampler([2], seed_times="nowhere.npy"), value="nowhere.npy", rule="seed_times read", remedy=".npy np.save"
    ),
    "a file of seed times that is no array": Mistake(
        file_that_is_no_array, value="times.npy", rule="seed_times read", remedy=".npy np.save"
    ),
    "a graph without times": Mistake(
        lambda graph: TemporalSampler([2], np.zeros(200, np.int64)).prepare(graph, np.arange(3)),
        value="times",
        rule="graph no times",
        remedy="Graph.from_edges NeighborSampler",
    ),
    "seeds without times": Mistake(
        lambda timed: sampled(timed, np.arange(3)), value="times", rule="seeds no times", remedy="TemporalSampler seed_times sample"
    ),
    "seed times of too few nodes": Mistake(
        lambda timed: TemporalSampler([2], np.zeros(5, np.int64)).sample(timed, np.arange(3)),
        value="(5,)",
        rule="seed_times int64",
        remedy="one each node",
    ),
    "times of too few seeds": Mistake(
        lambda timed: sampled(timed, np.arange(3), times=np.zeros(2, np.int64)), value="(2,)", rule="times int64", remedy="one each seed"
    ),
    "a seed that the graph has not": Mistake(
        lambda timed: sampled(timed, np.array([200]), times=np.zeros(1, np.int64)), value="seed 200", rule="not graph", remedy="0 199"
    ),
    "more seeds than there are trees": Mistake(too_many_trees, value="3 seeds", rule="batch tree most 2", remedy="smaller batches"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
