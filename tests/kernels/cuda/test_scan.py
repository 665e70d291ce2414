"""Prefix sums of rows equal NumPy's cumsum."""

import numpy as np
import pytest
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host

from hoptrain.kernels.cuda.scan import exclusive_scan, scan_into_buffer

pytestmark = needs_cuda
BLOCK = TESTED.block


def scan(values, begin, end, base, capacity, dtype=np.int32):
    rows, totals = to_device(values, dtype), to_device(np.full(len(begin), -1))
    sums = to_device(np.full((len(begin), -(-capacity // BLOCK)), -7))
    exclusive_scan(launch(len(begin)), rows, capacity, to_device(begin), to_device(end), to_device(base), sums, totals)
    return to_host(rows), to_host(totals)


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK * BLOCK, BLOCK * BLOCK + 1, 3 * BLOCK * BLOCK + 2])
def test_lengths_around_the_tile(length):
    values = np.random.default_rng(length).integers(0, 9, (1, length + 1))
    rows, totals = scan(values, [0], [length], [0], max(1, length))
    assert rows[0].tolist() == [0, *np.cumsum(values[0, :length])]
    assert totals.tolist() == [values[0, :length].sum()]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_of_different_lengths_with_offsets(dtype):
    values = np.random.default_rng(1).integers(0, 9, (4, 30))
    begin, end, base = [0, 3, 5, 7], [29, 17, 5, 8], [0, 100, 7, 3]
    rows, totals = scan(values, begin, end, base, 29, dtype)
    for b in range(4):
        expected = values[b].copy()
        expected[begin[b] : end[b] + 1] = base[b] + np.concatenate([[0], np.cumsum(values[b, begin[b] : end[b]])])
        assert rows[b].tolist() == expected.tolist(), "what stands outside the row's bounds stays"
        assert totals[b] == expected[end[b]]


def test_a_grid_smaller_than_the_row():
    """Prefix sums are right if there are more tiles than blocks, so that a block processes several tiles."""
    length = TESTED.max_blocks * BLOCK * 2 + 3
    values = np.ones((1, length + 1), np.int64)
    rows, _ = scan(values, [0], [length], [5], length, np.int64)
    assert rows[0].tolist() == list(range(5, length + 6))


@pytest.mark.parametrize("where", [0, BLOCK + 2])
@pytest.mark.parametrize("buffer_size", [20, 19])
def test_one_batch_that_exceeds_the_buffer_decides_for_all(where, buffer_size):
    """If one batch does not fit into the given capacity, no batch is scanned; there are more batches than threads in a block."""
    number = BLOCK + 3
    begin, base = np.arange(number) % 3, np.arange(number) % 2
    end, counts = begin + 2, np.ones((number, 5), np.int64)
    counts[where, begin[where]] = 19 - base[where]
    needed, ends, highs, counters = (to_device(np.full(number, -1)) for _ in range(4))
    highs.copy_to_device(end)
    rows, sums = to_device(counts), to_device(np.full((number, 2), -7))
    bounds = to_device(begin), highs, to_device(base)
    scan_into_buffer(launch(number), rows, 2, bounds, sums, needed, buffer_size, ends, counters)
    expected = base + 2
    expected[where] = 20
    assert to_host(needed).tolist() == expected.tolist()
    assert to_host(ends).tolist() == (expected if buffer_size == 20 else base).tolist()
    assert to_host(highs).tolist() == (end if buffer_size == 20 else begin).tolist()
    assert to_host(counters).tolist() == [-1 if buffer_size == 20 else 0] * number
