"""Batches without some edges: those that the sampler makes, less these edges and nothing else; with workers as without."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import ClusterSampler, LaborSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.feed.check_batch import check_batch
from hoptrain.samplers.feed.given import GivenBatches
from hoptrain.samplers.seeds.excluding import ExcludingSampler, items_of
from hoptrain.samplers.subgraphs.around import InducedSampler

SEEDS = np.array([7, 2, 30, 11])
SAMPLERS = {
    "all": NeighborSampler([-1, -1]),
    "some": NeighborSampler([3, 4]),
    "nested": NeighborSampler([3, 4], expand="new"),
    "repeated": NeighborSampler([6, 6], replace=True),
    "weights": LaborSampler([4, 4], 1),
    "subgraph": InducedSampler(NeighborSampler([3, 4])),
}


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edges(*np.random.default_rng(4).integers(0, 40, (2, 400)), 40)


def edges(block, dropped=()):
    """Sources, destinations, places and weights of a block's edges, but for those at the places ``dropped``."""
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    weights = np.ones(block.num_edges) if block.weights is None else block.weights
    listed = zip(block.indices, destinations, block.edge_ids, weights, strict=True)
    return [edge for edge in listed if edge[2] not in dropped]


def reached(batch, dropped):
    """The slow way: the vertices and, hop by hop from the seeds outward, the edges that are left, by what they join."""
    nodes, hops = batch.seeds.tolist(), []
    for block in reversed(batch.blocks):
        left, destinations = [], list(nodes)
        for vertex in destinations:
            row = batch.node_ids.tolist().index(vertex)
            ends = slice(*block.indptr[row : row + 2])
            weights = np.ones(block.num_edges) if block.weights is None else block.weights
            for source, place, weight in zip(batch.node_ids[block.indices[ends]], block.edge_ids[ends], weights[ends], strict=True):
                if place not in dropped:
                    left.append((source, vertex, place, weight))
                    nodes += [source] * (source not in nodes)
        hops.append((left, len(nodes), len(destinations)))
    return nodes, hops[::-1]


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("num_dropped", [0, 1, 150, 400])
def test_only_the_excluded_edges_are_missing(graph, sampler, num_dropped):
    dropped = np.random.default_rng(num_dropped).permutation(400)[:num_dropped]
    whole = sampler.sample(graph, SEEDS, seed=3, batch=2)
    batch = ExcludingSampler(sampler).sample(graph, items_of(SEEDS, dropped), seed=3, batch=2)
    assert batch.seeds.tolist() == SEEDS.tolist()
    assert batch.num_edges < whole.num_edges or num_dropped < 2
    if whole.nested:
        wanted = [(edges(block, set(dropped.tolist())), block.num_src, block.num_dst) for block in whole.blocks]
        assert [(edges(block), block.num_src, block.num_dst) for block in batch.blocks] == wanted
        assert batch.node_ids.tolist() == whole.node_ids.tolist()
        return
    nodes, hops = reached(whole, set(dropped.tolist()))
    found = batch.node_ids
    named = [[(found[src], found[dst], place, weight) for src, dst, place, weight in edges(block)] for block in batch.blocks]
    assert [(each, block.num_src, block.num_dst) for each, block in zip(named, batch.blocks, strict=True)] == hops
    assert sorted(found.tolist()) == sorted(nodes)
    check_batch(batch, sampler, graph, SEEDS)


def test_nodes_stay_if_the_excluded_edges_are_between_seeds(graph):
    """As those of links are: the batch differs in nothing but these edges."""
    between = np.flatnonzero(np.isin(graph.indices, SEEDS) & np.isin(graph.destinations(), SEEDS))
    whole = SAMPLERS["all"].sample(graph, SEEDS)
    batch = ExcludingSampler(SAMPLERS["all"]).sample(graph, items_of(SEEDS, between))
    assert len(between) > 0
    assert batch.node_ids.tolist() == whole.node_ids.tolist()
    assert [edges(block) for block in batch.blocks] == [edges(block, set(between.tolist())) for block in whole.blocks]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_deals_out_seeds_and_edges(graph, num_workers):
    sampler, given = ExcludingSampler(SAMPLERS["some"]), GivenBatches(2)
    items = [items_of(SEEDS[:2], np.arange(20)), items_of(SEEDS[2:])]
    given.begin(5, 2)
    for step, asked in enumerate(items):
        given.give(step, asked)
    with SampleLoader(Dataset(graph=graph), sampler, schedule=given, num_workers=num_workers) as loader:
        for step, batch in enumerate(loader):
            wanted = sampler.sample(graph, items[step], seed=5, batch=step)
            assert [edges(block) for block in batch.blocks] == [edges(block) for block in wanted.blocks]


def test_what_cannot_be_is_refused(graph):
    with refused("edge 400", "excluded not graph edges", "0 399"):
        ExcludingSampler(SAMPLERS["all"]).sample(graph, items_of(SEEDS, np.array([3, 400])))
    with refused("ClusterSampler", "sampler chooses seeds edges excluded", "NeighborSampler"):
        ExcludingSampler(ClusterSampler(2))
