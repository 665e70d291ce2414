import numpy as np
import pytest
import scipy.sparse

from hoptrain.kernels.cpu.csc import columns_sorted, coo_to_csc, first_out_of_range, sort_columns


def random_edges(seed, num_nodes, num_edges):
    source = np.random.default_rng(seed)
    return source.integers(0, num_nodes, num_edges), source.integers(0, num_nodes, num_edges)


SIZES = pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (1, 4), (2, 50), (5, 3), (100, 400), (300, 20_000)])


@SIZES
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_coo_to_csc_against_lexsort(num_nodes, num_edges, dtype):
    """Conversion from COO to CSC equals a stable sort by destination and source, so parallel edges keep the given order."""
    src, dst = random_edges(num_edges, num_nodes, num_edges)
    indptr, indices, edge_ids = coo_to_csc(src, dst, num_nodes, dtype)
    order = np.lexsort((src, dst))
    assert np.array_equal(edge_ids, order)
    assert np.array_equal(indices, src[order])
    assert np.array_equal(indptr, np.concatenate([[0], np.bincount(dst, minlength=num_nodes).cumsum()]))
    assert (indptr.dtype, indices.dtype, edge_ids.dtype) == (np.int64, dtype, np.int64)


@SIZES
def test_coo_to_csc_against_scipy(num_nodes, num_edges):
    """Conversion from COO to CSC has scipy's multiplicities of edges; they are compared since scipy sums parallel edges."""
    src, dst = random_edges(num_edges, num_nodes, num_edges)
    indptr, indices, _ = coo_to_csc(src, dst, num_nodes, np.int64)
    ours = scipy.sparse.csc_array((np.ones(len(indices)), indices, indptr), shape=(num_nodes, num_nodes))
    theirs = scipy.sparse.coo_array((np.ones(len(src)), (src, dst)), shape=(num_nodes, num_nodes))
    assert np.array_equal(ours.toarray(), theirs.toarray())


def test_coo_to_csc_leaves_its_input_alone():
    src, dst = random_edges(0, 10, 30)
    before = src.copy(), dst.copy()
    coo_to_csc(src, dst, 10, np.int32)
    assert np.array_equal(src, before[0])
    assert np.array_equal(dst, before[1])


@SIZES
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sort_columns(num_nodes, num_edges, dtype):
    src, dst = random_edges(num_edges, num_nodes, num_edges)
    indptr, expected, _ = coo_to_csc(src, dst, num_nodes, dtype)
    indices = expected.copy()
    for v in range(num_nodes):
        np.random.default_rng(v).shuffle(indices[indptr[v] : indptr[v + 1]])
    sort_columns(indptr, indices)
    assert np.array_equal(indices, expected)


@pytest.mark.parametrize(
    ("indptr", "indices", "expected"),
    [
        ([0], [], True),
        ([0, 0, 0], [], True),
        ([0, 3], [1, 1, 2], True),
        ([0, 3], [1, 2, 1], False),
        ([0, 2, 4], [5, 6, 0, 1], True),  # a descent between two columns is allowed
        ([0, 0, 2, 2, 4], [5, 6, 1, 0], False),
    ],
)
def test_columns_sorted(indptr, indices, expected):
    assert columns_sorted(np.array(indptr, np.int64), np.array(indices, np.int32)) == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("ids", "limit", "place"),
    [([], 0, -1), ([0], 0, 0), ([0, 1, 2], 3, -1), ([0, 3, -1], 3, 1), ([2, 0, -1], 3, 2), ([-1], 3, 0)],
)
def test_first_out_of_range(ids, limit, place, dtype):
    assert first_out_of_range(np.array(ids, dtype), limit) == place


def test_first_out_of_range_does_not_wrap():
    assert first_out_of_range(np.array([1, 2**32 + 1]), 3) == 1
