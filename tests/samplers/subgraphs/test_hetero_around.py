"""The typed subgraph of the vertices that another sampler finds: all edges of every relation between them, and no others."""

import numpy as np
from cases.mistakes import refused
from hypothesis import given
from hypothesis import strategies as st
from reference.typed import typed_graph

from hoptrain.engine import HeteroGraph
from hoptrain.samplers import HeteroLaborSampler, HeteroSampler, Workspace
from hoptrain.samplers.feed.check_batch import check_batch
from hoptrain.samplers.seeds.hetero_excluding import HeteroExcludingSampler, typed_items
from hoptrain.samplers.subgraphs.hetero_around import HeteroInducedSampler

RELATIONS = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("b", "s", "a")]


def edges_between(graph, relation, nodes):
    """(M,) places of the edges whose two ends are among ``nodes``."""
    columns, (source, _, destination) = graph.relations[relation], relation
    ends = np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))
    return np.flatnonzero(np.isin(columns.indices, nodes[source]) & np.isin(ends, nodes[destination])), ends


def check_induced(graph, batch):
    """All edges between the nodes, each between its ends."""
    for relation, block in batch.blocks[0].items():
        source, _, destination = relation
        wanted, ends = edges_between(graph, relation, batch.node_ids)
        np.testing.assert_array_equal(np.sort(block.edge_ids), wanted)
        np.testing.assert_array_equal(batch.node_ids[source][block.indices], graph.relations[relation].indices[block.edge_ids])
        np.testing.assert_array_equal(np.repeat(batch.node_ids[destination], np.diff(block.indptr)), ends[block.edge_ids])


@given(st.integers(1, 20), st.integers(0, 12), st.integers(0, 80), st.integers(0, 2**32), st.booleans())
def test_all_edges_between_the_vertices(num_a, num_b, num_edges, seed, draws):
    generator = np.random.default_rng(seed)
    sizes = {"a": num_a, "b": num_b}
    numbers = {relation: num_edges if sizes[relation[0]] * sizes[relation[2]] else 0 for relation in RELATIONS}
    edges = {(u, r, v): tuple(generator.integers(0, max(1, sizes[kind]), numbers[u, r, v]) for kind in (u, v)) for u, r, v in RELATIONS}
    graph = HeteroGraph.from_edges(sizes, edges)
    seeds = {name: generator.permutation(number)[: 1 + seed % 3] for name, number in sizes.items() if number}
    hops = HeteroSampler([2, 1], expand="new") if draws else None
    sampler, workspace = HeteroInducedSampler(hops), Workspace()
    for _ in range(2):  # the second time over used scratch
        batch = sampler.sample(graph, seeds, seed=seed, workspace=workspace)
        nodes = seeds if hops is None else hops.sample(graph, seeds, seed=seed).node_ids
        for name in sizes:
            np.testing.assert_array_equal(batch.node_ids[name], nodes.get(name, []))
            np.testing.assert_array_equal(batch.node_ids[name][: batch.seed_counts[name]], seeds.get(name, []))
        check_induced(graph, batch)
        check_batch(batch, sampler, graph, graph.numbered(seeds))


def test_of_one_type_with_two_layers():
    """The last block has the edges into the seeds; labor finds vertices as well."""
    graph, seeds = typed_graph(), np.arange(5)
    for hops in (HeteroSampler([2, 2], "paper"), HeteroLaborSampler([2], "paper")):
        batch = HeteroInducedSampler(hops).prepare(graph, seeds).sample(graph, seeds)
        check_induced(graph, batch)
        assert batch.blocks[1]["author", "writes", "paper"].num_dst == 5
        assert batch.seeds.tolist() == [0, 1, 2, 3, 4]


def test_without_some_edges():
    graph, relation = typed_graph(), ("author", "writes", "paper")
    seeds, sampler = {"paper": np.arange(6), "author": np.arange(3)}, HeteroInducedSampler(HeteroSampler([3]))
    whole = sampler.sample(graph, seeds).blocks[0]
    gone = np.sort(whole[relation].edge_ids)[::2]
    batch = HeteroExcludingSampler(sampler).prepare(graph, np.zeros(0, int)).sample(graph, typed_items(graph, seeds, {relation: gone}))
    for name, block in batch.blocks[0].items():
        wanted = np.setdiff1d(whole[name].edge_ids, gone) if name == relation else np.sort(whole[name].edge_ids)
        np.testing.assert_array_equal(np.sort(block.edge_ids), wanted)
    into_seeds = batch.blocks[1][relation]
    assert into_seeds.num_dst == 6
    assert not np.isin(into_seeds.edge_ids, gone).any()
    assert len(into_seeds.edge_ids) > 0


def test_what_cannot_be_is_refused():
    with refused("0", "num_layers model 1 more"):
        HeteroInducedSampler(None, 0)
    with refused("seed 3", "given twice", "numpy.unique(seeds)"):
        HeteroInducedSampler(None).sample(typed_graph(), {"paper": np.array([3, 3])})
