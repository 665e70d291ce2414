"""Batches sampled together from edge files equal those sampled singly in memory, and the memory maps of the edges are never read."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Address, Dataset, Graph
from hoptrain.engine.features import take
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import LaborSampler, NeighborSampler
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


def contents(batch):
    arrays = {name: (array.dtype, array.tobytes()) for name, array in batch.arrays().items()}
    return arrays | {"at": (batch.seed, batch.epoch, batch.batch, batch.nested, batch.num_seeds, batch.repeats_edges)}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Return a graph with hubs, parallel edges, isolated nodes and weights of 0."""
    draw = np.random.default_rng(0)
    edges = draw.integers(0, 900, 20_000), (900 * draw.random(20_000) ** 3).astype(np.int64)
    weights = np.where(draw.random(20_000) < 0.3, 0, draw.random(20_000)).astype(np.float32)
    path = tmp_path_factory.mktemp("edges") / "data"
    Dataset(graph=Graph.from_edges(*edges, 1000, weights=weights)).save(path)
    return Dataset.open(path).graph


@pytest.mark.parametrize("at_once", [1, 1 << 22])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_batches_beside_each_other_are_those_of_a_graph_in_memory(graph, monkeypatch, sampler, at_once):
    monkeypatch.setattr(columns, "MOST_AT_ONCE", at_once)
    draw = np.random.default_rng(1)
    blind = Graph(graph.indptr, np.full_like(graph.indices, 999), weights=np.zeros_like(graph.weights), validate=False, is_sorted=True)
    files = EdgeFiles(blind, {name: FileRows.of(getattr(graph, name), "edges") for name in ("indices", "weights", "edge_ids")})
    seeds = [draw.choice(1000, number, replace=False) for number in (12, 1, 40)]
    for epoch in range(2):
        found = files.batches(sampler, [(own, Address(9, epoch, i)) for i, own in enumerate(seeds)])
        alone = [sampler.sample(graph, own, seed=9, epoch=epoch, batch=i) for i, own in enumerate(seeds)]
        assert [contents(batch) for batch, _ in found] == [contents(batch) for batch in alone]
        for (_, ids), batch in zip(found, alone, strict=True):
            expected = {name: graph.ids_of(places).tolist() for name, places in batch.edge_places().items()}
            assert {name: own.tolist() for name, own in ids.items()} == expected
    assert files.batches(sampler, []) == []
    assert files.read_s > 0


def test_seeds_are_checked(graph):
    files = EdgeFiles(graph, {"indices": FileRows.of(graph.indices, "edges")})
    with refused("seed 7", "given twice", "numpy.unique(seeds)"):
        files.batches(NeighborSampler([2]), [(np.array([7, 7]), Address(0, 0, 0))])


def test_ids_for_other_libraries_are_read_from_a_file_without_room(graph, monkeypatch):
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
