"""Sums over edges in CUDA C++ equal NumPy's in the same order, for each dtype, word width and split, with gradients of the weights."""

import re

import numpy as np
import pytest
from cases.bfloat16 import narrowed, widened
from cases.edge_sums import DEGREES, block_of, expected_dots, expected_sums
from cpp.machines import ARCHITECTURES, on_each_machine
from cpp.nvrtc import compile_source, text_of
from cuda_case import needs_cuda

from hoptrain.kernels.cuda.native.aggregate import NAMES
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.kernels.cuda.training.edges import grid_of, num_slots, sum_type

pytestmark = needs_cuda
PIECE = 2
KINDS = [("float32", "float32", 4), ("float32", "float32", 1), ("bfloat16", "float32", 8), ("bfloat16", "float32", 1), ("float32", "bfloat16", 4),
         ("float32", "bfloat16", 1), ("float64", "float64", 1)]  # fmt: skip
"""(dtype of the rows, dtype of the results, elements in a word)."""


def launched(machine, kernel, grid, arguments):
    """Launch a kernel with the number of threads that users' launches have."""
    machine.run("aggregate", kernel, *grid, arguments)


def given(machine, case, numbers, word, *, heads=1, head_width=2, weighted=False, scaled=False):
    """Return a block's offsets and sources, its rows as the kernels add them, the options, and the leading arguments of all kernels."""
    rng, kind = np.random.default_rng(1), sum_type(numbers)
    ptr, ind = block_of(case)
    rows = rng.standard_normal((14, heads * head_width * word)).astype(kind)
    stored = narrowed(rows) if numbers == "bfloat16" else rows
    rows = widened(stored) if numbers == "bfloat16" else rows
    options = {
        "weights": rng.standard_normal((len(ind), heads)).astype(kind) if weighted else None,
        "scale": rng.standard_normal(14).astype(kind) if scaled else None,
    }
    there = [0 if array is None else machine.array(array, array.dtype) for array in options.values()]
    first = [machine.array(ptr, np.int32), machine.array(ind, np.int32), *there, machine.array(stored, stored.dtype)]
    return ptr, ind, rows, options, [*first, heads * head_width, head_width, heads, len(ptr) - 1]


def sums(machine, case, numbers, results, word, *, mean=False, **options):
    """Return the kernels' sums, the factors of means, and the expected sums, before rounding to bfloat16."""
    ptr, ind, rows, factors, arguments = given(machine, case, numbers, word, **options)
    kind, width = sum_type(numbers), rows.shape[1] // word
    slots = num_slots(len(ind), PIECE)
    partial = machine.array(np.full((slots, rows.shape[1]), np.nan), kind)
    if slots:
        grid = grid_of(THRESHOLDS, slots, width)
        launched(machine, f"sum_pieces_{NAMES[numbers]}_{word}", grid, [*arguments, partial, len(ind), PIECE])
    out = machine.array(np.zeros((len(ptr) - 1, rows.shape[1])), np.uint16 if results == "bfloat16" else kind)
    inverse = machine.array(np.full(len(ptr) - 1, np.nan), kind) if mean else 0
    grid = grid_of(THRESHOLDS, len(ptr) - 1, width)
    name = f"sum_rows_{NAMES[numbers]}_{NAMES[results]}_{word}"
    launched(machine, name, grid, [*arguments, out, inverse, partial, PIECE])
    expected = expected_sums(ptr, ind, rows, **factors, heads=options.get("heads", 1), mean=mean, piece=PIECE)
    return out, inverse, narrowed(expected) if results == "bfloat16" else expected


@on_each_machine
@pytest.mark.parametrize(("numbers", "results", "word"), KINDS)
@pytest.mark.parametrize("case", ["random", "hubs side by side"])
def test_numbers_of_each_kind(machine, case, numbers, results, word):
    out, _, expected = sums(machine, case, numbers, results, word, mean=True, weighted=True, scaled=True, heads=2)
    np.testing.assert_array_equal(out, expected)


@on_each_machine
@pytest.mark.parametrize(
    "options",
    [{}, {"mean": True}, {"weighted": True}, {"scaled": True}, {"weighted": True, "heads": 3, "head_width": 1}, {"head_width": 70}],
    ids=["sum", "mean", "weighted", "scaled", "heads", "more words than threads"],
)  # fmt: skip
@pytest.mark.parametrize("case", [case for case in DEGREES if DEGREES[case]])
def test_blocks(machine, case, options):
    out, inverse, expected = sums(machine, case, "float32", "float32", 4, **options)
    np.testing.assert_array_equal(out, expected)
    if options.get("mean"):
        degrees = np.diff(block_of(case)[0])
        np.testing.assert_array_equal(
            inverse, np.where(degrees > 0, np.float32(1) / np.maximum(degrees, 1).astype(np.float32), np.float32(0))
        )


@on_each_machine
@pytest.mark.parametrize(("numbers", "word"), [("float32", 4), ("float32", 1), ("bfloat16", 8), ("bfloat16", 1), ("float64", 1)])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("with_mean", [False, True])
def test_the_derivative_by_the_weights(machine, numbers, word, heads, with_mean):
    ptr, ind, rows, _, arguments = given(machine, "ragged", numbers, word, heads=heads)
    kind, rng = sum_type(numbers), np.random.default_rng(4)
    gradient = rng.standard_normal((len(ptr) - 1, rows.shape[1])).astype(kind)
    inverse = rng.random(len(ptr) - 1).astype(kind) if with_mean else None
    out = machine.array(np.full((len(ind), heads), np.nan), kind)
    there = 0 if inverse is None else machine.array(inverse, kind)
    grid = grid_of(THRESHOLDS, len(ptr) - 1, 8)
    launched(machine, f"edge_dots_{NAMES[numbers]}_{word}", grid, [*arguments, out, machine.array(gradient, kind), there])
    np.testing.assert_allclose(out, expected_dots(ptr, ind, rows, gradient, heads=heads, inverse=inverse), rtol=1e-4, atol=1e-5)


@on_each_machine
def test_rounding_to_16_bits(machine):
    """Sums are rounded to bfloat16 correctly: ties go to even, overflow to infinity, and NaN stays NaN.

    Each destination has one edge, so rows are copied.
    """
    values = np.array([[1.0, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], [np.inf, -np.inf, np.nan, -0.0]], np.float32)
    ptr, ind = machine.array([0, 1, 2], np.int32), machine.array([0, 1], np.int32)
    out = machine.array(np.zeros((2, 4)), np.uint16)
    arguments = [ptr, ind, 0, 0, machine.array(values, np.float32), 1, 1, 1, 2, out, 0, 0, PIECE]
    launched(machine, "sum_rows_float_bfloat16_4", grid_of(THRESHOLDS, 2, 1), arguments)
    np.testing.assert_array_equal(widened(out), [[1, 1, 1 + 2**-6, np.inf], [np.inf, -np.inf, np.nan, 0]])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", ["sum_rows_float_float_4", "sum_rows_bfloat16_float_8", "sum_pieces_float_4"])
def test_four_rows_are_under_way_before_the_first_is_added(kernel, arch):
    text = text_of(compile_source("aggregate", arch)[0], kernel)
    order = "".join(found[:2] for found in re.findall(r"ld\.global\.nc\.v4|add\.(?:rn\.)?f32|fma", text))
    assert "ldldldldad" in order
    assert "fm" not in order
