"""Batches of each kind of sampler that come through worker processes equal those of a loader without workers."""

import numpy as np
import pytest
from cases.batches import contents

from hoptrain import samplers as s
from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph

NUM_NODES = {"a": 50, "b": 30, "c": 20}
TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("c", "r", "b"), ("b", "s", "a")]
TIMES = np.random.default_rng(4).integers(0, 1200, 200)
PLAIN = {
    "labor": s.LaborSampler([4, 3]),
    "labor with importance": s.LaborSampler([4, 3], 1),
    "vrgcn": s.VRGCNSampler([2, 2]),
    "pinsage": s.PinSAGESampler([4, 3]),
    "times": s.TemporalSampler([4, 3], TIMES),
    "increasing times": s.TemporalSampler([3, 3], TIMES, monotone=True),
    "links": s.LinkSampler(s.NeighborSampler([4, 3], expand="new"), "uniform", 2),
    "links, negatives by degree": s.LinkSampler(s.NeighborSampler([4, 3], expand="new"), "degree", 2),
}
HETERO = {
    "neighbours": s.HeteroSampler([3, 2], "a"),
    "nested hops": s.HeteroSampler([3, 2], "a", expand="new"),
    "labor": s.HeteroLaborSampler([3, 2], "a"),
    "pinsage": s.HeteroPinSAGESampler([4, 3], ["a:s:b", "b:s:a"]),
    "times": s.HeteroTemporalSampler([3, 2], "a", {"a": TIMES[:50]}),
    "hgt": s.HGTSampler([4, 3], "a"),
    "links": s.HeteroLinkSampler(s.HeteroSampler([3, 2], expand="new"), ("b", "s", "a"), "uniform", 2, "reverse", ("a", "s", "b")),
}


@pytest.fixture
def data(request, dataset):
    """Return a data set with edge times."""
    draw = np.random.default_rng(3)
    if request.param == "plain":
        graph = Graph(dataset.graph.indptr, dataset.graph.indices, times=draw.integers(0, 1000, dataset.graph.num_edges))
        return Dataset(name="timed", graph=graph, x=dataset.x, y=dataset.y, splits=dataset.splits, num_classes=3)
    edges = {relation: [draw.integers(0, NUM_NODES[relation[end]], 300) for end in (0, 2)] for relation in TRIPLES}
    graph = HeteroGraph.from_edges(NUM_NODES, edges, times={TRIPLES[0]: draw.integers(0, 1000, 300)})
    x = {"a": draw.random((50, 3)), "b": draw.random((30, 4)), "c": draw.random((20, 2))}
    return HeteroDataset(graph=graph, seed_type="a", x=x, y=np.arange(50), splits={"train": np.arange(45)})


@pytest.mark.parametrize(
    ("data", "sampler"),
    [
        pytest.param(graph, own, id=f"{graph}: {name}")
        for graph, all_of in (("plain", PLAIN), ("hetero", HETERO))
        for name, own in all_of.items()
    ],
    indirect=["data"],
)
def test_workers_change_nothing(data, sampler):
    batches = []
    for num_workers in (0, 2):
        with s.SampleLoader(data, sampler, batch_size=16, num_workers=num_workers, seed=5) as loader:
            batches.append([contents(batch) for _ in range(2) for batch in loader])
    assert len(batches[0]) >= 6
    assert batches[0] == batches[1]
