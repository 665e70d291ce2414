"""Weighted hops read parts of columns from files, in groups of any size, and draw the same edges as with whole columns in memory."""

from functools import partial

import numpy as np
import pytest

from hoptrain.engine import Address, Dataset, Graph
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.hops import Request
from hoptrain.samplers.loader.topology import columns
from hoptrain.samplers.loader.topology.weighted import DrawsByWeight


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Return 2000 nodes with edge weights in a file. A third of the weights are 0, including all weights of some nodes."""
    draw = np.random.default_rng(0)
    edges = np.stack([draw.integers(0, 2000, 30_000), (2000 * draw.random(30_000) ** 2).astype(np.int64)])
    weights = np.where(draw.random(30_000) < 0.3, 0, draw.random(30_000, dtype=np.float32) ** 9)
    weights[edges[1] % 50 == 0] = 0
    path = tmp_path_factory.mktemp("weighted") / "data"
    Dataset(graph=Graph.from_edges(*edges, 2000, weights=weights.astype(np.float32))).save(path)
    return Dataset.open(path).graph


@pytest.mark.parametrize("most", [1, 5000, 1 << 22])
@pytest.mark.parametrize(("fanout", "replace"), [(4, False), (4, True), (-1, False), (0.4, False), (0.4, True), (300, False)])
def test_edges_are_those_of_all_columns(graph, monkeypatch, most, fanout, replace):
    monkeypatch.setattr(columns, "MOST_AT_ONCE", most)
    sampler, draw = NeighborSampler([fanout], weighted=True, replace=replace), np.random.default_rng(1)
    seeds = [draw.choice(2000, size, replace=False).astype(np.int32) for size in (300, 1, 0, 700)]
    draws = DrawsByWeight(graph.indptr, partial(columns.read_entries, FileRows.of(graph.weights, "edges")))
    rule = sampler.along(graph)[ONLY].rule(0)
    for epoch in range(2):
        found = draws(rule, [Request(nodes, Address(7, epoch, i).at_hop(0)) for i, nodes in enumerate(seeds)])
        assert [own.tolist() for own in found.pop(2)] == [[0], []]
        for i, nodes in ((0, seeds[0]), (1, seeds[1]), (2, seeds[3])):
            [block] = sampler.sample(graph, nodes, seed=7, epoch=epoch, batch=i + (i == 2)).blocks
            indptr, places = found[i]
            assert (indptr.tolist(), places.tolist()) == (block.indptr.tolist(), block.edge_ids.tolist())
    assert len(found[0][1]) > 200
