"""Batches of a heterogeneous graph sampled together from files equal those sampled singly in memory; edge maps are never read."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Address, HeteroGraph
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import HeteroSampler
from hoptrain.samplers.loader.topology import columns
from hoptrain.samplers.loader.topology.edges import EdgeFiles

NUM_NODES = {"paper": 900, "author": 300, "field": 7}
WRITES, LED = ("author", "writes", "paper"), ("author", "led", "author")
NAMED = {"paper:cites:paper": [3, -1, 2], "paper:in:field": [0, 40, 0.05]}
SAMPLERS = [
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


def contents(batch):
    arrays = {name: (array.dtype, array.tobytes()) for name, array in batch.arrays().items()}
    sources = [{relation: block.num_src for relation, block in hop.items()} for hop in batch.blocks]
    kept = batch.nested, batch.num_seeds, batch.repeats_edges, batch.seed_counts, batch.seed_type, sources
    return arrays | {"at": (batch.seed, batch.epoch, batch.batch, *kept)}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Return a graph with hubs, parallel edges, isolated nodes, an empty relation, and weights for two relations."""
    draw = np.random.default_rng(0)
    sizes = {
        ("paper", "cites", "paper"): 9000,
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
    for relation in (("paper", "cites", "paper"), WRITES):
        weights[relation] = np.where(draw.random(sizes[relation]) < 0.3, 0, draw.random(sizes[relation])).astype(np.float32)
    path = tmp_path_factory.mktemp("typed") / "graph"
    HeteroGraph.from_edges(NUM_NODES, edges, weights=weights).save(path)
    return HeteroGraph.open(path)


def blind(graph):
    """Hide the edges in memory: the arrays hold only node 0, and no weight."""
    made = HeteroGraph(graph.num_nodes, {})
    for relation, own in graph.relations.items():
        weights = None if own.weights is None else np.zeros_like(own.weights)
        made.relations[relation] = RelationColumns(own.indptr, np.zeros_like(own.indices), own.num_src, weights=weights, validate=False)
    return made


def files_of(graph):
    """Return the edge files, except for the empty relation, for which no file can be mapped."""
    return {
        f"{name}.{relation_name(relation)}": FileRows.of(array, "edges")
        for relation, own in graph.relations.items()
        for name, array in own.arrays().items()
        if name in ("indices", "weights", "edge_ids") and len(array)
    }


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_batches_beside_each_other_are_those_of_a_graph_in_memory(graph, monkeypatch, sampler):
    monkeypatch.setattr(columns, "MOST_AT_ONCE", 500)
    draw = np.random.default_rng(1)
    files = EdgeFiles(blind(graph), files_of(graph))
    number = sum(NUM_NODES.values()) if sampler.seed_type is None else NUM_NODES[sampler.seed_type]
    seeds = [draw.choice(number, min(size, number), replace=False) for size in (12, 1, 40)]
    for epoch in range(2):
        found = files.batches(sampler, [(own, Address(9, epoch, i)) for i, own in enumerate(seeds)])
        alone = [sampler.sample(graph, own, seed=9, epoch=epoch, batch=i) for i, own in enumerate(seeds)]
        assert [contents(batch) for batch, _ in found] == [contents(batch) for batch in alone]
        for (_, ids), batch in zip(found, alone, strict=True):
            expected = {}
            for relation, own in graph.relations.items():
                if own.num_edges:
                    places = batch.edge_places(f"edge_attr.{relation_name(relation)}")
                    expected |= {name: own.ids_of(each).tolist() for name, each in places.items()}
            assert {name: own.tolist() for name, own in ids.items()} == expected != {}
    assert files.batches(sampler, []) == []
    assert files.read_s > 0


def test_hops_that_leave_a_relation_out_read_nothing_of_it(graph):
    sampler = HeteroSampler({relation_name(WRITES): [0, 0]}, "paper", default=[2, 2], weighted=True)
    files = EdgeFiles(blind(graph), files_of(graph))
    files.batches(sampler, [(np.arange(50), Address(0, 0, 0))])
    of = {name: file.num_reads for name, file in files.files.items()}
    assert of["weights.paper:cites:paper"] > 0
    assert [of[f"{name}.{relation_name(WRITES)}"] for name in ("weights", "indices", "edge_ids")] == [0, 0, 0]


def test_seeds_are_checked(graph):
    with refused("seed 7", "given twice", "numpy.unique(seeds)"):
        EdgeFiles(graph, files_of(graph)).batches(HeteroSampler([2], "paper"), [(np.array([7, 7]), Address(0, 0, 0))])
