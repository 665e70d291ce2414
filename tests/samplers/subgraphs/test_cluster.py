"""ClusterSampler: its clusters, its batches, and the message if METIS is missing."""

import sys

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

import hoptrain.engine.partition.methods as methods
from hoptrain.engine import Graph
from hoptrain.samplers import ClusterSampler
from hoptrain.samplers.subgraphs.cluster import partition


def cluster_lists(sampler):
    return [np.flatnonzero(sampler.cluster_of == cluster).tolist() for cluster in range(sampler.num_clusters)]


@settings(max_examples=40)
@given(graph=graphs(), data=st.data())
def test_any_graph(graph, data):
    split = data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1))
    number = data.draw(st.integers(1, min(5, graph.num_nodes)))
    sampler = ClusterSampler(number, num_layers=3).prepare(graph, np.array(sorted(split)))
    clusters = cluster_lists(sampler)
    assert sorted(v for nodes in clusters for v in nodes) == list(range(graph.num_nodes))
    with_seed = [c for c, nodes in enumerate(clusters) if split & set(nodes)]
    assert sampler.items(graph, np.array(sorted(split))).tolist() == with_seed
    units = data.draw(st.lists(st.sampled_from(with_seed), min_size=1, unique=True))
    nodes, num_seeds = reference.seeds_first([v for c in units for v in clusters[c]], split)
    expected = num_seeds, nodes, *reference.induced(graph, nodes), None, None
    assert as_lists(sampler.sample(graph, np.array(units), batch=3)) == expected


def test_clusters_are_even_and_cut_few_edges():
    """Sixteen clusters of a torus of 1,600 nodes have similar sizes and keep over 70 % of the edges; random ones would keep 1 in 16."""
    graph = grid(40)
    sampler = ClusterSampler(16).prepare(graph, np.arange(1600))
    clusters = cluster_lists(sampler)
    assert all(90 <= len(nodes) <= 110 for nodes in clusters)
    kept = sum(sampler.sample(graph, np.array([c])).num_edges for c in range(16))
    assert kept > 0.7 * graph.num_edges


def test_edges_between_joined_clusters_are_there():
    graph = grid(10)
    sampler = ClusterSampler(4).prepare(graph, np.arange(100))
    alone = [sampler.sample(graph, np.array([c])).num_edges for c in range(4)]
    assert sum(alone) < sampler.sample(graph, np.arange(4)).num_edges == graph.num_edges


def test_the_partition_is_the_same_on_every_call(graph):
    first, second = (partition(graph, 7) for _ in range(2))
    assert first.tolist() == second.tolist()


def test_direction_and_copies_of_edges_do_not_matter():
    graph = grid(6)
    dst = np.repeat(np.arange(36), graph.in_degrees())
    one_way = graph.indices < dst
    loops = np.arange(36)
    copies = Graph.from_edges(np.r_[graph.indices[one_way], graph.indices[one_way], loops], np.r_[dst[one_way], dst[one_way], loops])
    assert partition(copies, 4).tolist() == partition(graph, 4).tolist()


def test_every_node_of_the_split_is_a_seed_once_in_an_epoch(dataset):
    batches = check_loader(dataset, ClusterSampler(12, num_layers=3), 4)
    assert len(batches) == 3
    assert sorted(v for num_seeds, nodes, *_ in batches for v in nodes[:num_seeds]) == dataset.splits["train"].tolist()


def test_clusters_without_a_seed_are_not_yielded(dataset):
    split = np.array([3, 5])
    sampler = ClusterSampler(20).prepare(dataset.graph, split)
    units = sampler.items(dataset.graph, split)
    assert 1 <= len(units) <= 2
    other = np.setdiff1d(np.arange(20), units)[:1]
    with refused(f"[{other[0]}]", "clusters none nodes train", "sampler.items(graph, seeds)"):
        sampler.sample(dataset.graph, other)


def test_batches_are_pure(graph):
    check_pure(ClusterSampler(8).prepare(graph, np.arange(200)), graph, [np.array([0, 5]), np.array([7]), np.arange(8)])


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_training():
    accuracy, loss = fit(ClusterSampler(60), 2)
    assert accuracy > 0.6
    assert loss < 2


def clusters_without_pymetis(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    monkeypatch.setattr(methods, "find_spec", lambda name: None)
    ClusterSampler(3).prepare(graph, np.arange(5))


MISTAKES = {
    "METIS without pymetis": Mistake(
        clusters_without_pymetis, value="pymetis", rule="METIS needs not installed", remedy="'pip install hoptrain[cluster]'"
    ),
    "no clusters": Mistake(lambda: ClusterSampler(0), value="0", rule="num_clusters graph least one"),
    "more clusters than nodes": Mistake(
        lambda graph: ClusterSampler(201).prepare(graph, np.arange(5)),
        value="201",
        rule="num_clusters num_nodes=200 fewer nodes",
        remedy="200 less",
    ),
    "an unknown cluster": Mistake(
        lambda graph: ClusterSampler(3).prepare(graph, np.arange(5)).sample(graph, np.array([9])),
        value="cluster 9",
        rule="not exist",
        remedy="0 2",
    ),
    "clusters before preparing": Mistake(
        lambda graph: ClusterSampler(3).items(graph, np.arange(5)),
        value="ClusterSampler",
        rule="not know nodes train",
        remedy="sampler.prepare(graph, seeds) SampleLoader",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
