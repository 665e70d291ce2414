"""Batches without excluded edges equal the sampler's batches less these edges, with and without workers."""

import numpy as np
import pytest
from cases.mistakes import refused
from reference.hetero_data import hetero_graph

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import ClusterSampler, HeteroLaborSampler, HeteroSampler, LaborSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.loader.external_seeds import ExternalBatchSampler
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler, InducedSampler
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, hetero_items, items_of

SEEDS = np.array([7, 2, 30, 11])
SAMPLERS = {
    "all": NeighborSampler([-1, -1]),
    "some": NeighborSampler([3, 4]),
    "nested": NeighborSampler([3, 4], expand="new"),
    "repeated": NeighborSampler([6, 6], replace=True),
    "weights": LaborSampler([4, 4], 1),
    "subgraph": InducedSampler(NeighborSampler([3, 4])),
}
HETERO = {
    "all": HeteroSampler([-1, -1]),
    "some": HeteroSampler([2, 3]),
    "nested": HeteroSampler([2, 3], expand="new"),
    "weights": HeteroLaborSampler([3, 3]),
    "subgraph": HeteroInducedSampler(HeteroSampler([3]), 2),
}


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edges(*np.random.default_rng(4).integers(0, 40, (2, 400)), 40)


def edges(block, dropped=()):
    """Return (source, destination, position, weight) of a block's edges, except for those at the positions ``dropped``."""
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    weights = np.ones(block.num_edges) if block.weights is None else block.weights
    listed = zip(block.indices, destinations, block.edge_ids, weights, strict=True)
    return [edge for edge in listed if edge[2] not in dropped]


def opened(batch):
    """Return a batch's nodes and seed counts by type, and its blocks by relation; a homogeneous batch has one type and relation."""
    if isinstance(batch.node_ids, dict):
        return batch.node_ids, batch.seed_counts, batch.blocks
    return {"": batch.node_ids}, {"": batch.num_seeds}, [{ONLY: block} for block in batch.blocks]


def reached(batch, dropped):
    """Compute the nodes by type, and hop by hop from the seeds outward the remaining edges, slowly, in Python lists."""
    node_ids, seed_counts, blocks = opened(batch)
    nodes, hops = {kind: ids[: seed_counts[kind]].tolist() for kind, ids in node_ids.items()}, []
    for hop in reversed(blocks):
        destinations, found = {kind: list(ids) for kind, ids in nodes.items()}, {}
        for relation, block in hop.items():
            source, _, kind = relation
            left = found[relation] = []
            for node in destinations[kind]:
                row = node_ids[kind].tolist().index(node)
                ends = slice(*block.indptr[row : row + 2])
                weights = np.ones(block.num_edges) if block.weights is None else block.weights
                for other, place, weight in zip(node_ids[source][block.indices[ends]], block.edge_ids[ends], weights[ends], strict=True):
                    if place not in dropped[relation]:
                        left.append((other, node, place, weight))
                        nodes[source] += [other] * (other not in nodes[source])
        hops.append({r: (left, len(nodes[r[0]]), len(destinations[r[2]])) for r, left in found.items()})
    return nodes, hops[::-1]


def check_excluded(whole, batch, dropped):
    """Check that ``batch`` is ``whole`` without the edges ``dropped``, which are sets of positions by relation."""
    (found, _, blocks), (nodes, _, whole_blocks) = opened(batch), opened(whole)
    if whole.nested:
        listed = [{r: (edges(block), block.num_src, block.num_dst) for r, block in hop.items()} for hop in blocks]
        assert listed == [{r: (edges(block, dropped[r]), block.num_src, block.num_dst) for r, block in hop.items()} for hop in whole_blocks]
    else:
        nodes, hops = reached(whole, dropped)
        named = [
            {
                r: ([(found[r[0]][src], found[r[2]][dst], *own) for src, dst, *own in edges(block)], block.num_src, block.num_dst)
                for r, block in hop.items()
            }
            for hop in blocks
        ]
        assert named == hops
    assert {kind: ids.tolist() for kind, ids in found.items()} == {kind: list(ids) for kind, ids in nodes.items()}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("num_dropped", [0, 1, 150, 400])
def test_only_the_excluded_edges_are_missing(graph, sampler, num_dropped):
    dropped = np.random.default_rng(num_dropped).permutation(400)[:num_dropped]
    whole = sampler.sample(graph, SEEDS, seed=3, batch=2)
    batch = ExcludingSampler(sampler).sample(graph, items_of(SEEDS, dropped), seed=3, batch=2)
    assert batch.num_edges < whole.num_edges or num_dropped < 2
    check_excluded(whole, batch, {ONLY: set(dropped.tolist())})
    check_batch(batch, sampler, graph, SEEDS)


@pytest.mark.parametrize("sampler", HETERO.values(), ids=HETERO)
@pytest.mark.parametrize("share", [0, 0.4, 1])
def test_only_the_excluded_edges_of_each_relation_are_missing(sampler, share):
    graph, seeds, generator = hetero_graph(), {"paper": np.arange(6), "author": np.arange(3)}, np.random.default_rng(1)
    places = {r: generator.permutation(own.num_edges)[: int(share * own.num_edges)] for r, own in graph.relations.items()}
    whole = sampler.sample(graph, seeds, seed=3, batch=2)
    excluding = ExcludingSampler(sampler).prepare(graph, np.zeros(0, int))
    batch = excluding.sample(graph, hetero_items(graph, seeds, places if share else None), seed=3, batch=2)
    assert whole.num_edges > batch.num_edges or not share
    check_excluded(whole, batch, {r: set(own.tolist()) for r, own in places.items()})
    check_batch(batch, sampler, graph, graph.numbered(seeds))


def test_nodes_stay_if_the_excluded_edges_are_between_seeds(graph):
    """If all excluded edges are between seeds, as links are, the batch keeps all nodes and lacks only these edges."""
    between = np.flatnonzero(np.isin(graph.indices, SEEDS) & np.isin(graph.destinations(), SEEDS))
    whole = SAMPLERS["all"].sample(graph, SEEDS)
    batch = ExcludingSampler(SAMPLERS["all"]).sample(graph, items_of(SEEDS, between))
    assert len(between) > 0
    assert batch.node_ids.tolist() == whole.node_ids.tolist()
    assert [edges(block) for block in batch.blocks] == [edges(block, set(between.tolist())) for block in whole.blocks]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_yields_seeds_and_edges(graph, num_workers):
    sampler, given = ExcludingSampler(SAMPLERS["some"]), ExternalBatchSampler(2)
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
