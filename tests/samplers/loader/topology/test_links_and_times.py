"""Link samplers, temporal samplers and heterogeneous LABOR with edges in files: batches are bit-identical, and edge maps are never read."""

from functools import partial

import numpy as np
import pytest
from cases.batches import contents, same
from cases.hidden_edges import files_of, hide_edges, hide_edges_from
from ranks import in_threads

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, HeteroGraph
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import (
    HeteroLaborSampler,
    HeteroLinkSampler,
    HeteroSampler,
    HeteroTemporalSampler,
    LaborSampler,
    LinkSampler,
    NeighborSampler,
    SampleLoader,
    TemporalSampler,
)
from hoptrain.samplers.loader.topology import columns
from hoptrain.samplers.loader.topology.edges import EdgeFiles
from hoptrain.samplers.wrappers.timed import TimedSeeds

V, E = 1000, 16_000
NUM = {"user": 700, "item": V, "tag": 9}
BUYS, BOUGHT, LIKES, OF = ("user", "buys", "item"), ("item", "bought", "user"), ("item", "like", "item"), ("tag", "of", "item")
SIZES = {BUYS: 9000, BOUGHT: 9000, LIKES: 6000, OF: 2000}
AT = np.random.default_rng(5).integers(20, 100, V)

PLAIN = [
    TemporalSampler([5, 3], AT),
    TemporalSampler([4, -1, 2], AT, strategy="recent"),
    TemporalSampler([100, 0.3], AT),
    TemporalSampler([3, 2], AT, replace=True),
    TimedSeeds(TemporalSampler([5, 3])),
    *(LinkSampler(NeighborSampler([4, 3]), negatives, 3) for negatives in ("uniform", "degree", "in_batch", "pairs")),
    LinkSampler(NeighborSampler([3, -1], expand="new"), exclude="self", with_edge_ids=True),
    LinkSampler(NeighborSampler([4, 3], weighted=True), exclude="none", dst_range=(100, 900)),
    LinkSampler(LaborSampler([5, 3]), num_negatives=0),
    LinkSampler(TemporalSampler([5, 3]), num_negatives=2),
    LinkSampler(TemporalSampler([5, -1], strategy="recent"), "in_batch", exclude="none"),
]
FANOUTS = {relation_name(BUYS): [3, -1], relation_name(OF): [0, 0.5]}
HETERO = [
    HeteroLaborSampler([5, 3], "item"),
    HeteroLaborSampler([2, -1, 300], "item"),
    HeteroLaborSampler(FANOUTS, "item", default=[2, 0]),
    HeteroLaborSampler([5, 3], "item", importance_rounds=2),
    HeteroLaborSampler([4, 3], "item", weighted=True, importance_rounds=1),
    HeteroTemporalSampler([5, 3], "item", {"item": AT}),
    HeteroTemporalSampler(FANOUTS, "item", {"item": AT}, default=[4, 2], strategy="recent"),
    HeteroTemporalSampler([3, 2], "item", {"item": AT}, replace=True),
    TimedSeeds(HeteroTemporalSampler([4, 3], "item")),
    HeteroLinkSampler(HeteroSampler([4, 3]), BUYS, num_negatives=2),
    HeteroLinkSampler(HeteroSampler([4, 3], expand="new"), LIKES, exclude="none", negatives="in_batch", edges="all"),
    HeteroLinkSampler(HeteroLaborSampler([4, 3]), BUYS, exclude="reverse", reverse_relation=BOUGHT, negatives="degree"),
    HeteroLinkSampler(HeteroSampler([4, 3], weighted=True), [BUYS, LIKES], num_negatives=2),
    HeteroLinkSampler(HeteroTemporalSampler([4, 3]), BUYS, num_negatives=2),
    HeteroLinkSampler(HeteroTemporalSampler([4, 3], strategy="recent"), LIKES, exclude="none"),
]


def shown(sampler):
    return repr(sampler).replace("array", "")[:60]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return a graph with hubs, parallel edges, isolated nodes, equal times, and edge ids in another order than the columns."""
    draw = np.random.default_rng(0)
    ends = draw.integers(0, V - 100, E), ((V - 50) * draw.random(E) ** 3).astype(np.int64)
    weights = np.where(draw.random(E) < 0.3, 0, draw.random(E)).astype(np.float32)
    graph = Graph.from_edges(*ends, V, weights=weights, times=draw.integers(0, 100, E))
    path = tmp_path_factory.mktemp("plain") / "data"
    x, splits = draw.random((V, 24), dtype=np.float32), {"train": np.arange(0, V, 2)}
    Dataset(graph=graph, x=x, y=draw.integers(0, 3, V), edge_attr=draw.random((E, 3), dtype=np.float32), splits=splits).save(path)
    return path


@pytest.fixture(scope="module")
def hetero(tmp_path_factory):
    """Return a graph like ``plain``, with three node types, and times and weights for some relations."""
    draw, edges, further = np.random.default_rng(1), {}, {"weights": {}, "times": {}}
    for relation, size in SIZES.items():
        source, destination = (NUM[kind] for kind in (relation[0], relation[2]))
        edges[relation] = draw.integers(0, source, size), (destination * draw.random(size) ** 3).astype(np.int64)
    edges[BOUGHT] = edges[BUYS][::-1]
    for relation in (BUYS, LIKES, OF):
        further["times" if relation != OF else "weights"][relation] = draw.integers(0, 100, SIZES[relation])
    further["weights"] = {relation: draw.random(SIZES[relation], dtype=np.float32) for relation in (LIKES, OF)}
    path = tmp_path_factory.mktemp("hetero") / "data"
    HeteroDataset(
        graph=HeteroGraph.from_edges(NUM, edges, **further),
        seed_type="item",
        x={"item": draw.random((V, 24), dtype=np.float32), "user": draw.random((NUM["user"], 8), dtype=np.float32)},
        y=draw.integers(0, 3, V),
        splits={"train": np.arange(0, V, 2)},
    ).save(path)
    return path


def opened_at(path):
    return (Dataset if (path / "x.npy").exists() else HeteroDataset).open(path)


@pytest.mark.parametrize("at_once", [500, 1 << 22])
@pytest.mark.parametrize(("name", "sampler"), [*(("plain", own) for own in PLAIN), *(("hetero", own) for own in HETERO)], ids=shown)
def test_batches_beside_each_other_are_those_of_a_graph_in_memory(request, monkeypatch, name, sampler, at_once):
    monkeypatch.setattr(columns, "MOST_AT_ONCE", at_once)
    (graph, hidden), draw = (opened_at(request.getfixturevalue(name)).graph for _ in range(2)), np.random.default_rng(2)
    hide_edges(hidden)
    files, sampler = EdgeFiles(hidden, files_of(graph)), sampler.prepare(graph, np.arange(0, V, 2))
    items = [draw.permutation(sampler.items(graph, np.arange(0, V, 2)))[:size] for size in (40, 1, 7)]
    if isinstance(sampler, TimedSeeds):
        items = [np.concatenate([own, draw.integers(0, 110, len(own))]) for own in items]
    for epoch in range(2):
        found = [batch for batch, _ in files.batches(sampler, [(own, Address(9, epoch, i)) for i, own in enumerate(items)])]
        alone = []
        for i, own in enumerate(items):
            alone.append(contents(sampler.sample(graph, own, seed=9, epoch=epoch, batch=i)))
        assert list(map(contents, found)) == alone
        assert sum(batch.num_edges for batch in found) > 40
        assert len({str(batch.arrays()) for batch in found}) == 3


LOADED = {
    "times": ("plain", TemporalSampler([4, 3], AT)),
    "links": ("plain", LinkSampler(NeighborSampler([3, 2]), num_negatives=2)),
    "links at times": ("plain", LinkSampler(TemporalSampler([3, 2], strategy="recent"), with_edge_ids=True)),
    "hetero LABOR": ("hetero", HeteroLaborSampler([4, 3], "item")),
    "hetero times": ("hetero", HeteroTemporalSampler([4, 3], "item", {"item": AT})),
    "hetero links": ("hetero", HeteroLinkSampler(HeteroSampler([3, 2]), [BUYS, LIKES])),
    "hetero links at times": ("hetero", HeteroLinkSampler(HeteroTemporalSampler([3, 2]), BUYS)),
}


@pytest.fixture
def loader_of(request, opened, memory_for_edges):
    """Return a function that makes loaders on a machine without memory for the edges, and close them after the test."""
    memory_for_edges(0)

    def make(name, **options):
        folder, sampler = LOADED[name]
        size = 400 if "links" in name else 64
        opened.append(SampleLoader(opened_at(request.getfixturevalue(folder)), sampler, **({"batch_size": size, "seed": 5} | options)))
        return opened[-1]

    return make


@pytest.mark.parametrize(("name", "workers"), [(name, int(name.endswith("links at times"))) for name in LOADED])
def test_batches_of_a_loader_are_those_from_memory_and_nobody_looks_at_the_map(loader_of, name, workers):
    cached, plain = loader_of(name, feature_cache="2MiB", num_workers=workers), loader_of(name)
    hide_edges_from(cached)
    for _ in range(2):
        assert same(cached, plain) == len(plain) > 2
    assert cached.task.receiver is not None


@pytest.mark.parametrize("name", ["links at times", "hetero LABOR", "hetero links at times"])  # all that batches of the others have
def test_ranks_of_a_machine_share_what_is_sampled(loader_of, as_rank, name):
    cached = [loader_of(name, feature_cache="2MiB", rank=rank, world_size=2) for rank in range(2)]
    plain = [loader_of(name, rank=rank, world_size=2) for rank in range(2)]

    def train(rank):
        as_rank(rank)
        return same(cached[rank], plain[rank])

    assert in_threads([partial(train, rank) for rank in range(2)]) == [len(plain[0])] * 2
    assert all(loader.task.receiver is not None for loader in cached)
    assert [len(loader.feature_cache.pids()) for loader in cached] == [1, 0]


@pytest.mark.parametrize(
    "sampler",
    [LinkSampler(NeighborSampler([3, 2]), "filtered"), TemporalSampler([3, 2], AT, monotone=True)],
    ids=["filtered negatives", "paths"],
)
def test_what_looks_at_the_map_says_so(plain, opened, memory_for_edges, caplog, sampler):
    memory_for_edges(0)
    opened.append(SampleLoader(Dataset.open(plain), sampler, feature_cache="2MiB"))
    next(iter(opened[-1]))
    assert f"they stay mapped, since {type(sampler).__name__} accesses them itself" in caplog.text
    assert opened[-1].task.edges is None
