"""Batches sampled together from edge files equal those sampled singly in memory, and the memory maps of the edges are never read."""

import numpy as np
import pytest
from cases.batches import contents
from cases.hidden_edges import READ, files_of, hide_edges
from cases.mistakes import refused

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.features import take
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import HeteroSampler, LaborSampler, NeighborSampler
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.hops import columns_of, types_of
from hoptrain.samplers.loader.topology import columns
from hoptrain.samplers.loader.topology.edges import EdgeFiles

SAMPLERS = [
    *(
        NeighborSampler(fanouts, **options)
        for fanouts in ([5, 3], [2, -1, 4], [100, 70], [0.3, 4], [3, 0.5])
        for options in ({}, {"replace": True})
    ),
    NeighborSampler([1], expand="new"),
    NeighborSampler([-1]),
    NeighborSampler([3, -1, 2], expand="new"),
    NeighborSampler([4, 3], weighted=True),
    LaborSampler([5, 3]),
    LaborSampler([1, -1, 300]),
    LaborSampler([0.3, 0.5]),
    LaborSampler([5, 3], importance_rounds=2),
    LaborSampler([4, 3], weighted=True),
    LaborSampler([4, 3], weighted=True, importance_rounds=1),
]
NUM_NODES = {"paper": 900, "author": 300, "field": 7}
CITES, WRITES, LED = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("author", "led", "author")
NAMED = {"paper:cites:paper": [3, -1, 2], "paper:in:field": [0, 40, 0.05]}
HETERO_SAMPLERS = [
    *(
        HeteroSampler(fanouts, "paper", **options)
        for fanouts in ([5, 3], [2, -1, 4], [100, 70], [0.3, 4])
        for options in ({}, {"replace": True}, {"expand": "new"})
    ),
    HeteroSampler(NAMED, "paper", default=[2, 0, 2]),
    HeteroSampler(NAMED, "paper", default=[2, 0, 2], expand="new"),
    HeteroSampler([1], "field", expand="new"),
    HeteroSampler([3, 2]),
    HeteroSampler([4, 3], "paper", weighted=True),
    HeteroSampler([4, 0.5], "paper", weighted=True, expand="new"),
    HeteroSampler(NAMED, "paper", default=[2, 0, 2], weighted=True, replace=True),
]


def plain_graph():
    """Return a graph with hubs, parallel edges, isolated nodes and weights of 0."""
    draw = np.random.default_rng(0)
    edges = draw.integers(0, 900, 20_000), (900 * draw.random(20_000) ** 3).astype(np.int64)
    weights = np.where(draw.random(20_000) < 0.3, 0, draw.random(20_000)).astype(np.float32)
    return Graph.from_edges(*edges, 1000, weights=weights)


def hetero_graph():
    """Return a graph with hubs, parallel edges, isolated nodes, an empty relation, and weights for two relations."""
    draw = np.random.default_rng(0)
    sizes = {
        CITES: 9000,
        WRITES: 2000,
        ("paper", "in", "field"): 3000,
        ("field", "of", "paper"): 900,
        ("paper", "by", "author"): 700,
        LED: 0,
    }
    edges, weights = {}, {}
    for relation, size in sizes.items():
        source, destination = (NUM_NODES[kind] for kind in (relation[0], relation[2]))
        edges[relation] = draw.integers(0, source, size), (destination * draw.random(size) ** 3).astype(np.int64)
    for relation in (CITES, WRITES):
        weights[relation] = np.where(draw.random(sizes[relation]) < 0.3, 0, draw.random(sizes[relation])).astype(np.float32)
    return HeteroGraph.from_edges(NUM_NODES, edges, weights=weights)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("edges")
    plain_graph().save(path / "plain")
    hetero_graph().save(path / "hetero")
    return path


@pytest.fixture
def graph(request, folder):
    return (HeteroGraph if request.param == "hetero" else Graph).open(folder / request.param)


@pytest.fixture
def files(graph, folder):
    """Return the edge files of a graph whose edges are hidden in memory."""
    hidden = type(graph).open(folder / ("hetero" if isinstance(graph, HeteroGraph) else "plain"))
    hide_edges(hidden, (*READ, "edge_ids"))
    return EdgeFiles(hidden, files_of(graph))


@pytest.mark.parametrize(
    ("graph", "sampler", "at_once"),
    [
        *(("plain", sampler, at_once) for sampler in SAMPLERS for at_once in (1, 1 << 22)),
        *(("hetero", sampler, 500) for sampler in HETERO_SAMPLERS),
    ],
    ids=str,
    indirect=["graph"],
)
def test_batches_beside_each_other_are_those_of_a_graph_in_memory(graph, files, monkeypatch, sampler, at_once):
    monkeypatch.setattr(columns, "MOST_AT_ONCE", at_once)
    draw, numbers = np.random.default_rng(1), {kind: number for kind, (number, _) in types_of(graph).items()}
    number = numbers.get(getattr(sampler, "seed_type", None) or "", sum(numbers.values()))
    seeds = [draw.choice(number, min(size, number), replace=False) for size in (12, 1, 40)]
    for epoch in range(2):
        found = files.batches(sampler, [(own, Address(9, epoch, i)) for i, own in enumerate(seeds)])
        alone = [sampler.sample(graph, own, seed=9, epoch=epoch, batch=i) for i, own in enumerate(seeds)]
        assert [contents(batch) for batch, _ in found] == [contents(batch) for batch in alone]
        for (_, ids), batch in zip(found, alone, strict=True):
            expected = {
                name: own.ids_of(places).tolist()
                for relation, own in columns_of(graph).items()
                if own.num_edges
                for name, places in batch.edge_places(named("edge_attr", relation)).items()
            }
            assert {name: own.tolist() for name, own in ids.items()} == expected != {}
    assert files.batches(sampler, []) == []
    assert files.read_s > 0


@pytest.mark.parametrize("graph", ["hetero"], indirect=True)
def test_hops_that_leave_a_relation_out_read_nothing_of_it(files):
    sampler = HeteroSampler({relation_name(WRITES): [0, 0]}, "paper", default=[2, 2], weighted=True)
    files.batches(sampler, [(np.arange(50), Address(0, 0, 0))])
    of = {name: file.num_reads for name, file in files.files.items()}
    assert of["weights.paper:cites:paper"] > 0
    assert [of[f"{name}.{relation_name(WRITES)}"] for name in ("weights", "indices", "edge_ids")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("graph", "sampler"), [("plain", NeighborSampler([2])), ("hetero", HeteroSampler([2], "paper"))], indirect=["graph"]
)
def test_seeds_are_checked(files, sampler):
    with refused("seed 7", "given twice", "numpy.unique(seeds)"):
        files.batches(sampler, [(np.array([7, 7]), Address(0, 0, 0))])


@pytest.mark.parametrize("graph", ["plain"], indirect=True)
def test_ids_for_other_libraries_are_read_from_a_file_that_does_not_fit(graph, monkeypatch):
    batch, read = NeighborSampler([4, 3]).sample(graph, np.arange(0, 900, 7)), []
    places = np.concatenate([[-1], *(block.edge_ids for block in batch.blocks), [-1, -1]])
    expected, in_pyg = graph.ids_of(places), batch.to_pyg().e_id.tolist()
    monkeypatch.setattr(take, "available_memory", lambda: 0)
    monkeypatch.setattr(FileRows, "read", lambda *args, whole=FileRows.read: (read.append(1), whole(*args))[1])
    found = batch.ids_of(places)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    assert batch.ids_of(np.array([-1])).tolist() == [-1]
    assert batch.to_pyg().e_id.tolist() == in_pyg
    assert len(read) == 3
