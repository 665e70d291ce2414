"""Sums over edges by Numba's kernels equal NumPy's in the same order, by destination and in pieces, with gradients of the weights."""

import numpy as np
import pytest
from cases.edge_sums import DEGREES, block_of, expected_dots, expected_sums
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host
from numba import cuda

from hoptrain.engine.device import is_simulated
from hoptrain.kernels.cuda.training.aggregate import edge_dots, sum_rows
from hoptrain.kernels.cuda.training.edges import BlockEdges, grid_of

pytestmark = needs_cuda


def empty(shape, dtype):
    return cuda.device_array(shape, dtype)


def given(case, heads, width, dtype, *, weighted, scaled):
    """Return the block and its rows on the host, and the kernels' arguments."""
    rng = np.random.default_rng(1)
    ptr, ind = block_of(case)
    rows = rng.standard_normal((14, heads * width)).astype(dtype)
    options = {
        "weights": rng.standard_normal((len(ind), heads)).astype(dtype) if weighted else None,
        "scale": rng.standard_normal(14).astype(dtype) if scaled else None,
    }
    there = {name: None if array is None else to_device(_some(array), dtype) for name, array in options.items()}
    edges = BlockEdges(ptr=to_device(ptr, np.int32), ind=to_device(_some(ind), np.int32)[: len(ind)], heads=heads, **there)
    return ptr, ind, rows, options, edges


def _some(array):
    """Return an array with at least one element, since a device has no empty memory."""
    return array if array.size else np.zeros((1, *array.shape[1:]), array.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("heads", "width", "weighted", "scaled", "mean"),
    [(1, 5, False, False, False), (1, 5, False, False, True), (1, 3, True, False, False), (1, 3, False, True, False), (2, 3, True, True, True)],
    ids=["sum", "mean", "weighted", "scaled", "all with heads"],
)  # fmt: skip
@pytest.mark.parametrize("case", [case for case in DEGREES if DEGREES[case]])
def test_sums(case, heads, width, weighted, scaled, mean, dtype):
    ptr, ind, rows, options, edges = given(case, heads, width, dtype, weighted=weighted, scaled=scaled)
    out, inverse = empty((len(ptr) - 1, rows.shape[1]), dtype), empty(len(ptr) - 1, dtype) if mean else None
    sum_rows(launch(1), edges, to_device(rows, dtype), out, inverse=inverse, empty=empty, piece=2)
    expected = expected_sums(ptr, ind, rows, **options, heads=heads, mean=mean)
    if is_simulated() or not (weighted or scaled):
        np.testing.assert_array_equal(to_host(out), expected)
    else:  # NVVM fuses a product with the following addition
        np.testing.assert_allclose(to_host(out), expected, rtol=1e-5, atol=1e-6)
    if mean:
        degrees = np.diff(ptr)
        np.testing.assert_array_equal(to_host(inverse), np.where(degrees > 0, dtype(1) / np.maximum(degrees, 1).astype(dtype), dtype(0)))


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("case", ["ragged", "a hub", "random"])
def test_the_derivative_by_the_weights(case, heads, with_mean):
    ptr, ind, rows, _, edges = given(case, heads, 4, np.float32, weighted=True, scaled=False)
    gradient = np.random.default_rng(3).standard_normal((len(ptr) - 1, rows.shape[1])).astype(np.float32)
    inverse = (1 / np.maximum(1, np.diff(ptr))).astype(np.float32) if with_mean else None
    out = empty((len(ind), heads), np.float32)
    there = None if inverse is None else to_device(inverse, np.float32)
    edge_dots(launch(1), edges, to_device(rows, np.float32), to_device(gradient, np.float32), out, inverse=there, empty=empty)
    np.testing.assert_allclose(to_host(out), expected_dots(ptr, ind, rows, gradient, heads=heads, inverse=inverse), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width", "lanes"), [(1, 1), (3, 4), (25, 32), (64, 32)])
def test_a_thread_has_a_word_of_a_row(width, lanes):
    thresholds = TESTED
    grid, (along, over) = grid_of(thresholds, 1000, width)
    assert along == min(lanes, thresholds.block)
    assert along * over == thresholds.block
    assert grid == (min(thresholds.max_blocks, -(-1000 // over)), 1)
