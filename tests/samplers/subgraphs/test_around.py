"""Induced subgraphs of the nodes that another sampler finds: they have all edges between these nodes, of every relation."""

import numpy as np
import pytest
from cases.mistakes import refused
from hypothesis import given
from hypothesis import strategies as st
from reference.hetero_data import hetero_graph

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.samplers import ClusterSampler, HeteroLaborSampler, HeteroSampler, NeighborSampler, TemporalSampler, Workspace
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler, InducedSampler


@given(st.integers(1, 30), st.integers(0, 120), st.integers(0, 2**32), st.integers(1, 3))
def test_all_edges_between_the_nodes(num_nodes, num_edges, seed, fanout):
    generator = np.random.default_rng(seed)
    graph = Graph.from_edges(*generator.integers(0, num_nodes, (2, num_edges)), num_nodes)
    seeds = generator.permutation(num_nodes)[: 1 + seed % 3]
    hops = NeighborSampler([fanout, fanout], expand="new")
    batch = InducedSampler(hops).sample(graph, seeds, seed=seed, workspace=Workspace())
    nodes = hops.sample(graph, seeds, seed=seed).node_ids
    np.testing.assert_array_equal(batch.node_ids, nodes)
    assert len(batch.blocks) == 2
    destinations = graph.destinations()
    inside = np.isin(graph.indices, nodes) & np.isin(destinations, nodes)
    outermost = batch.blocks[0]
    np.testing.assert_array_equal(np.sort(outermost.edge_ids), np.flatnonzero(inside))
    ends = np.repeat(nodes, np.diff(outermost.indptr))
    np.testing.assert_array_equal(nodes[outermost.indices], graph.indices[outermost.edge_ids])
    np.testing.assert_array_equal(ends, destinations[outermost.edge_ids])


RELATIONS = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("b", "s", "a")]


def edges_between(graph, relation, nodes):
    """Return the CSC positions of edges with both ends among ``nodes``, with shape (M,)."""
    columns, (source, _, destination) = graph.relations[relation], relation
    ends = np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))
    return np.flatnonzero(np.isin(columns.indices, nodes[source]) & np.isin(ends, nodes[destination])), ends


def check_induced(graph, batch):
    """Check that a batch has all edges between its nodes, each with the right ends."""
    for relation, block in batch.blocks[0].items():
        source, _, destination = relation
        wanted, ends = edges_between(graph, relation, batch.node_ids)
        np.testing.assert_array_equal(np.sort(block.edge_ids), wanted)
        np.testing.assert_array_equal(batch.node_ids[source][block.indices], graph.relations[relation].indices[block.edge_ids])
        np.testing.assert_array_equal(np.repeat(batch.node_ids[destination], np.diff(block.indptr)), ends[block.edge_ids])


@given(st.integers(1, 20), st.integers(0, 12), st.integers(0, 80), st.integers(0, 2**32), st.booleans())
def test_all_edges_between_the_nodes_of_each_type(num_a, num_b, num_edges, seed, draws):
    generator = np.random.default_rng(seed)
    sizes = {"a": num_a, "b": num_b}
    numbers = {relation: num_edges if sizes[relation[0]] * sizes[relation[2]] else 0 for relation in RELATIONS}
    edges = {(u, r, v): tuple(generator.integers(0, max(1, sizes[kind]), numbers[u, r, v]) for kind in (u, v)) for u, r, v in RELATIONS}
    graph = HeteroGraph.from_edges(sizes, edges)
    seeds = {name: generator.permutation(number)[: 1 + seed % 3] for name, number in sizes.items() if number}
    hops = HeteroSampler([2, 1], expand="new") if draws else None
    sampler, workspace = HeteroInducedSampler(hops), Workspace()
    for _ in range(2):  # the second time with used scratch buffers
        batch = sampler.sample(graph, seeds, seed=seed, workspace=workspace)
        nodes = seeds if hops is None else hops.sample(graph, seeds, seed=seed).node_ids
        for name in sizes:
            np.testing.assert_array_equal(batch.node_ids[name], nodes.get(name, []))
            np.testing.assert_array_equal(batch.node_ids[name][: batch.seed_counts[name]], seeds.get(name, []))
        check_induced(graph, batch)
        check_batch(batch, sampler, graph, graph.numbered(seeds))


def test_of_one_type_with_two_layers():
    """With two layers, the last block has the edges into the seeds only, whether uniform or LABOR sampling finds the nodes."""
    graph, seeds = hetero_graph(), np.arange(5)
    for hops in (HeteroSampler([2, 2], "paper"), HeteroLaborSampler([2], "paper")):
        batch = HeteroInducedSampler(hops, 2).prepare(graph, seeds).sample(graph, seeds)
        check_induced(graph, batch)
        assert batch.blocks[1]["author", "writes", "paper"].num_dst == 5
        assert batch.seeds.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("sampler", [ClusterSampler(2), TemporalSampler([2])])
def test_samplers_without_seeds_or_with_trees_are_refused(sampler):
    with refused(type(sampler).__name__, "seeds each node once", "NeighborSampler"):
        InducedSampler(sampler)


@pytest.mark.parametrize("kind", [InducedSampler, HeteroInducedSampler])
def test_no_layers_are_refused(kind):
    with refused("0", "num_layers model 1 layers"):
        kind(None, 0)


@pytest.mark.parametrize(
    ("sampler", "graph", "seeds"),
    [
        (InducedSampler(None), Graph.from_edges([0, 1], [1, 2], 4), np.array([3, 3])),
        (HeteroInducedSampler(None), hetero_graph(), {"paper": np.array([3, 3])}),
    ],
    ids=["plain", "hetero"],
)
def test_a_seed_that_is_given_twice_is_refused(sampler, graph, seeds):
    with refused("seed 3", "given twice", "numpy.unique(seeds)"):
        sampler.sample(graph, seeds)
