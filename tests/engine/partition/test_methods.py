"""Partitioning methods: passes equal slow versions, size limits hold, and few edges are cut in graphs with communities."""

import numpy as np
import pytest
from cases.mistakes import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptrain.engine import Graph, load_dataset
from hoptrain.engine.partition import columns as columns_module
from hoptrain.engine.partition import methods
from hoptrain.engine.partition.columns import CoarseGraph, contract
from hoptrain.engine.partition.methods import METHODS, REQUESTS_SLACK, ROWS_SLACK, assign, vertex_sizes
from hoptrain.kernels.cpu.partition.count import ONE
from hoptrain.kernels.cpu.partition.propagate import propagate

NONE = np.empty(0, np.int32)


@st.composite
def graphs(draw):
    """Draw a multigraph with self loops, and labels of its nodes."""
    number = draw(st.integers(1, 12))
    node = st.integers(0, number - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    labels = draw(st.lists(st.integers(0, 3), min_size=number, max_size=number))
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    return Graph.from_edges(src, dst, number), np.array(labels, np.int32)


def communities(num_parts, size, seed=0):
    """Return dense groups of nodes in mixed order, with few edges between groups."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(num_parts), size))
    members = [np.flatnonzero(group == part) for part in range(num_parts)]
    pairs = [rng.choice(nodes, (8 * size, 2)) for nodes in members] + [rng.integers(0, num_parts * size, (size, 2))]
    src, dst = np.concatenate(pairs).T
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src], num_parts * size), group


@settings(max_examples=60)
@given(graphs(), st.integers(1, 12))
def test_a_pass_is_the_slow_one(made, limit):
    graph, labels = made
    expected, loads = labels.copy(), np.bincount(labels, minlength=4)
    for v in range(graph.num_nodes):
        sources = [u for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]] if u != v]
        met = list(dict.fromkeys(expected[u] for u in sources))
        number = {label: sum(expected[u] == label for u in sources) for label in met}
        own = expected[v]
        best, most = own, number.get(own, 0)
        for label in met:
            if number[label] > most and loads[label] < limit:
                best, most = label, number[label]
        loads[own] -= 1
        loads[best] += 1
        expected[v] = best
    sizes, found = np.ones((graph.num_nodes, 1), np.int64), np.bincount(labels, minlength=4)[:, None]
    gains, seen, before = np.zeros(4, np.int64), np.empty(64, np.int32), labels.copy()
    moved = propagate(graph.indptr, graph.indices, NONE, sizes, labels, found, np.array([limit]), gains, seen)
    assert labels.tolist() == expected.tolist()
    assert moved == (before != labels).sum()
    assert found[:, 0].tolist() == loads.tolist()
    assert not gains.any()


@settings(max_examples=60)
@given(graphs(), st.integers(1, 9))
def test_a_contraction_counts_the_edges_between_labels(made, piece):
    graph, labels = made
    expected = np.zeros((4, 4), int)
    for u, v in zip(labels[graph.indices], labels[graph.destinations()], strict=True):
        if u != v:
            expected[u, v] += 1
            expected[v, u] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "PIECE", piece)
        small = contract(CoarseGraph(graph.indptr, graph.indices, NONE, np.ones((graph.num_nodes, 1), np.int64)), labels, 4)
        again = contract(small, np.arange(4, dtype=np.int32), 4)
    for found, times in ((small, 1), (again, 2)):
        dense = np.zeros((4, 4), int)
        dense[found.indices, np.repeat(np.arange(4), np.diff(found.indptr))] = found.edge_sizes
        assert dense.tolist() == (times * expected).tolist()
        assert found.sizes[:, 0].tolist() == np.bincount(labels, minlength=4).tolist()


def test_requests_are_one_as_a_seed_and_one_for_each_edge_that_is_drawn():
    src, dst = np.array([0, 1, 2, *range(20)]), np.array([1, 0, 0, *[3] * 20])
    sizes = vertex_sizes(Graph.from_edges(src, dst, 21))
    assert sizes[:, 0].tolist() == [1] * 21
    assert sizes[:, 1].tolist() == [
        ONE + ONE * edges + ONE // 2 * (v < 20) for v, edges in zip(range(21), [1, 1, 1] + [0] * 18, strict=True)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_limits_hold_and_nothing_is_drawn(method):
    _skip_without_metis(method)
    graph, _ = communities(3, 200)
    parts = assign(graph, 3, method)
    loads = np.stack([np.bincount(parts, sizes, 3) for sizes in vertex_sizes(graph).T])
    assert (loads <= loads.sum(1, keepdims=True) / 3 * np.array([[ROWS_SLACK], [REQUESTS_SLACK]]) + 1).all()
    assert parts.tolist() == assign(graph, 3, method).tolist()


@pytest.mark.parametrize("method", ["stream", "metis"])
@pytest.mark.parametrize("small_enough", [1 << 22, 200])
def test_parts_that_are_there_are_found(method, small_enough, monkeypatch):
    _skip_without_metis(method)
    monkeypatch.setattr(methods, "SMALL_ENOUGH", small_enough)
    graph, group = communities(4, 250)
    parts = assign(graph, 4, method)
    assert _cut(graph, parts) <= 1.1 * _cut(graph, group)


@pytest.mark.parametrize("name", ["pubmed", "coauthor_physics", "debian_deps"])
def test_on_real_graphs_stream_cuts_few_more_edges_than_metis(data_root, name):
    _skip_without_metis("metis")
    graph = load_dataset(name, root=data_root).graph
    cuts = {method: _cut(graph, assign(graph, 4, method)) for method in METHODS}
    assert 0 < cuts["stream"] <= 1.5 * cuts["metis"] < cuts["range"], cuts


def test_ranges_are_ranges():
    graph, _ = communities(3, 100)
    parts = assign(graph, 3, "range")
    assert (np.diff(parts) >= 0).all()
    assert set(parts.tolist()) == {0, 1, 2}


def test_graphs_without_edges_and_without_nodes():
    none = np.empty(0, np.int64)
    for method in METHODS:
        _skip_without_metis(method)
        assert np.bincount(assign(Graph.from_edges(none, none, 8), 4, method)).max() <= 3
        assert assign(Graph.from_edges(none, none, 0), 1, method).tolist() == []


def test_bad_input():
    graph, _ = communities(2, 5)
    with refused("11", "parts graph 10 nodes", "1 to 10 number range"):
        assign(graph, 11)
    with refused("'spectral'", "method one of", "stream, metis, range choose"):
        assign(graph, 2, "spectral")


def _cut(graph, parts):
    """Return the fraction of edges that connect two partitions."""
    return (parts[graph.indices] != parts[graph.destinations()]).mean()


def _skip_without_metis(method):
    if method != "range":
        pytest.importorskip("pymetis", reason="pymetis is not installed: pip install hoptrain[cluster]")
