from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch
from cases.mistakes import refused
from torch_geometric.data import Data

from hoptrain.engine import Graph

SRC = np.array([2, 0, 1, 2, 2, 0])
DST = np.array([0, 1, 1, 1, 1, 3])
INDPTR = [0, 1, 5, 5, 6]
INDICES = [2, 0, 1, 2, 2, 0]


def check(graph):
    assert graph.indptr.tolist() == INDPTR
    assert graph.indices.tolist() == INDICES
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int32, np.int32)
    assert (graph.num_nodes, graph.num_edges, graph.is_sorted) == (4, 6, True)


# Constructors.


def test_from_csc():
    check(Graph(np.array(INDPTR), np.array(INDICES)))
    check(Graph(np.array(INDPTR, np.uint32), np.array(INDICES, np.uint8)))


def test_arrays_of_the_right_kind_are_not_copied():
    indptr, indices = np.array(INDPTR, np.int32), np.array(INDICES, np.int32)
    graph = Graph(indptr, indices)
    assert np.shares_memory(graph.indptr, indptr)
    assert np.shares_memory(graph.indices, indices)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_from_edges_of_any_integer_dtype(dtype):
    check(Graph.from_edges(SRC.astype(dtype), DST.astype(dtype)))


def test_from_edges_in_any_order():
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(SRC))
        check(Graph.from_edges(SRC[order], DST[order]))


def test_from_edges_with_strides():
    pairs = np.stack([SRC, DST], axis=1)
    check(Graph.from_edges(pairs[:, 0], pairs[:, 1]))


def test_from_edges_with_isolated_nodes_at_the_end():
    graph = Graph.from_edges(SRC, DST, num_nodes=6)
    assert graph.num_nodes == 6
    assert graph.in_degrees().tolist() == [1, 4, 0, 1, 0, 0]
    assert graph.in_degrees(np.float32).dtype == np.float32
    assert graph.in_degrees(np.float32).tolist() == [1, 4, 0, 1, 0, 0]


def test_self_loops_and_multi_edges_are_kept():
    graph = Graph.from_edges(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 0]))
    assert graph.indptr.tolist() == [0, 3, 4]
    assert graph.indices.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("convert", ["tocsc", "tocsr", "tocoo", "tolil"])
@pytest.mark.parametrize("kind", [scipy.sparse.coo_matrix, scipy.sparse.coo_array])
def test_from_scipy(convert, kind):
    matrix = kind((np.ones(4), (SRC[:4], DST[:4])), shape=(4, 4))
    graph = Graph.from_scipy(getattr(matrix, convert)())
    assert graph.indptr.tolist() == [0, 1, 4, 4, 4]
    assert graph.indices.tolist() == [2, 0, 1, 2]
    assert graph.indices.dtype == np.int32


def test_from_scipy_counts_stored_zeros():
    assert Graph.from_scipy(scipy.sparse.csc_array((np.zeros(1), ([1], [0])), shape=(2, 2))).num_edges == 1


@pytest.mark.parametrize("convert", ["tocoo", "tocsc", "tocsr"])
def test_from_scipy_keeps_equal_entries(convert):
    """Every stored entry of a scipy matrix becomes an edge.

    Scipy's own conversion would sum duplicates, so the test builds CSC and CSR matrices itself.
    """
    parts = (np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3]))
    matrices = {
        "tocoo": scipy.sparse.coo_array((np.ones(3), ([1, 1, 0], [0, 0, 1])), shape=(2, 2)),
        "tocsc": scipy.sparse.csc_array(parts, shape=(2, 2)),
        "tocsr": scipy.sparse.csr_array(parts, shape=(2, 2)).T.tocsr(),
    }
    graph = Graph.from_scipy(matrices[convert])
    assert graph.num_edges == 3
    if convert != "tocsr":
        assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 2, 3], [1, 1, 0])


def test_from_scipy_does_not_copy_csc():
    matrix = scipy.sparse.csc_array((np.ones(2), np.array([1, 0], np.int32), np.array([0, 2, 2], np.int32)), shape=(2, 2))
    assert np.shares_memory(Graph.from_scipy(matrix).indices, matrix.indices)


def test_from_scipy_with_unused_capacity():
    matrix = scipy.sparse.csc_array((np.ones(4), np.array([1, 0, 0, 0]), np.array([0, 1, 2])), shape=(2, 2))
    assert Graph.from_scipy(matrix).indices.tolist() == [1, 0]


def test_from_scipy_with_unsorted_columns():
    graph = Graph.from_scipy(scipy.sparse.csc_array((np.ones(2), np.array([1, 0]), np.array([0, 2, 2])), shape=(2, 2)))
    assert not graph.is_sorted
    assert graph.indices.tolist() == [1, 0]


def test_from_pyg():
    check(Graph.from_pyg(Data(edge_index=torch.tensor(np.stack([SRC, DST])), num_nodes=4)))


def test_from_pyg_takes_its_number_of_nodes():
    assert Graph.from_pyg(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=7)).num_nodes == 7


def fake_dgl(src=SRC, dst=DST, num_nodes=4):
    return SimpleNamespace(
        is_homogeneous=True,
        edges=lambda: (torch.tensor(src), torch.tensor(dst)),
        num_nodes=lambda: num_nodes,
    )


def test_from_dgl():
    check(Graph.from_dgl(fake_dgl()))
    assert Graph.from_dgl(fake_dgl(num_nodes=9)).num_nodes == 9


# Nothing, and order.


@pytest.mark.parametrize(
    "graph",
    [
        Graph(np.array([0]), np.array([], np.int64)),
        Graph.from_edges(np.array([]), np.array([])),
        Graph.from_edges(np.array([], np.int64), np.array([], np.int64), num_nodes=0),
        Graph.from_scipy(scipy.sparse.csr_array((0, 0))),
    ],
)
def test_empty_graph(graph):
    assert (graph.num_nodes, graph.num_edges, graph.is_sorted) == (0, 0, True)
    assert graph.in_degrees().tolist() == []
    assert graph.indices.dtype == np.int32


def test_no_edges():
    graph = Graph.from_edges(np.array([]), np.array([]), num_nodes=3)
    assert (graph.num_nodes, graph.num_edges) == (3, 0)
    assert graph.in_degrees().tolist() == [0, 0, 0]


def test_is_sorted():
    assert Graph(np.array([0, 2, 4]), np.array([0, 1, 0, 0])).is_sorted is True
    assert Graph(np.array([0, 2, 4]), np.array([0, 1, 1, 0])).is_sorted is False
    assert Graph(np.array([0, 2, 4]), np.array([0, 1, 1, 0]), is_sorted=True).is_sorted is True, "stated, so not looked at"


def test_repr():
    assert repr(Graph.from_edges(SRC, DST)) == "Graph(num_nodes=4, num_edges=6, is_sorted=True)"


# Lists, folders and weights.


def test_lists_are_taken():
    check(Graph(INDPTR, INDICES))
    check(Graph.from_edges(SRC.tolist(), DST.tolist()))
    assert Graph([0, 0], []).num_nodes == 1


def test_saved_and_opened_again(graph, tmp_path):
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    np.testing.assert_array_equal(opened.indptr, graph.indptr)
    np.testing.assert_array_equal(opened.indices, graph.indices)
    assert opened.is_sorted is graph.is_sorted
    assert not opened.indices.flags.owndata
    with refused(str(tmp_path / "graph"), "exists folders written over", "remove name another"):
        graph.save(tmp_path / "graph")


def test_in_memory_is_the_same_graph_without_its_file(tmp_path):
    graph = Graph.from_edges([0, 1, 2], [1, 1, 0], weights=np.array([1.0, 2.0, 0.5]))
    graph.save(tmp_path / "graph")
    mapped = Graph.open(tmp_path / "graph")
    copy = mapped.in_memory()
    for name in ("indptr", "indices", "weights"):
        assert not np.shares_memory(getattr(copy, name), getattr(mapped, name))
        np.testing.assert_array_equal(getattr(copy, name), getattr(graph, name))
        assert not getattr(copy, name).flags.writeable
    assert copy.is_sorted


def test_weights_follow_their_edges():
    graph = Graph.from_edges([5, 3, 4, 3], [0, 0, 1, 0], 6, weights=np.array([5.0, 3.0, 4.0, 3.5], np.float32))
    assert graph.indices.tolist() == [3, 3, 5, 4]
    assert graph.weights.tolist() == [3.0, 3.5, 5.0, 4.0]
    assert graph.weights.dtype == np.float32


# Parts of graphs.


def test_with_edges_keeps_weights_and_times():
    graph = Graph(np.array([0, 2, 3, 3]), np.array([2, 0, 1]), weights=np.arange(3.0), times=np.arange(3))
    assert graph.destinations().tolist() == [0, 0, 1]
    part = graph.with_edges(np.array([False, True, True]))
    assert (part.indptr.tolist(), part.indices.tolist()) == ([0, 1, 2, 2], [0, 1])
    assert (part.weights.tolist(), part.times.tolist()) == ([1.0, 2.0], [1, 2])
    assert (graph.is_sorted, part.is_sorted) == (False, True)
    with refused("int64", "is_kept (3,) bool 3 edges", "mask"):
        graph.with_edges(np.array([0, 1, 1]))


def test_from_pairs_has_each_edge_once_each_way():
    graph = Graph.from_pairs(np.array([0, 1, 0, 2]), np.array([1, 0, 1, 2]), 4)
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 2, 3, 3], [1, 0, 2])
