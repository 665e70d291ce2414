"""The subgraph of the vertices that another sampler finds: all edges between them, and no others."""

import numpy as np
import pytest
from cases.mistakes import refused
from hypothesis import given
from hypothesis import strategies as st

from hoptrain.engine import Graph
from hoptrain.samplers import ClusterSampler, NeighborSampler, TemporalSampler, Workspace
from hoptrain.samplers.subgraphs.around import InducedSampler


@given(st.integers(1, 30), st.integers(0, 120), st.integers(0, 2**32), st.integers(1, 3))
def test_all_edges_between_the_vertices(num_nodes, num_edges, seed, fanout):
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


@pytest.mark.parametrize("sampler", [ClusterSampler(2), TemporalSampler([2])])
def test_samplers_without_seeds_or_with_trees_are_refused(sampler):
    with refused(type(sampler).__name__, "vertices not found seeds once", "NeighborSampler"):
        InducedSampler(sampler)
