"""Rows gathered from device memory, from pinned host memory, and from both."""

import numpy as np
import pytest
from cases.mistakes import refused
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host

from hoptrain.engine.gpu_memory.device_store import DeviceRows, as_words
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.kernels.cuda.gather import count_ids, count_placed, word_dtype

pytestmark = needs_cuda
PLACES = {
    "device": ("device", None, 0),
    "pinned": ("pinned", None, 0),
    "mixed": ("pinned", [3, 17, 0], 1),
    "all hot": ("pinned", range(20), 1),
    "on two GPUs": ("pinned", [3, 17, 0], 2),
    "on two, all hot": ("device", range(19, -1, -1), 2),
    "on five": ("pinned", [19, 5, 3, 0, 7, 8, 9], 5),
}
"""Name -> (placement of the table, nodes with hot rows, number of GPUs that share the hot rows)."""


def make_store(dtype, shape):
    source = np.random.default_rng(0)
    return source.integers(0, 256, (20, *shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]


def rows_of(store, placement, hot, num_parts):
    rows = DeviceRows(store, DeviceStream(), placement=placement, thresholds=TESTED)
    if num_parts:
        hot = np.array(hot)
        parts = tuple(to_device(as_words(store)[hot[part::num_parts]], None) for part in range(num_parts))
        rows.keep_hot(hot, parts if num_parts > 1 else None)
    return rows


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.float32, (7,)), (np.float32, (4,)), (np.float16, (3,)), (np.uint16, (8,)), (np.uint8, (5,)), (np.int64, (2, 3))],
)
def test_rows_are_bit_identical(dtype, shape, place):
    store = make_store(dtype, shape)
    ids = np.array([19, 3, 3, 0, 17, 5, 1], np.int32)
    table = rows_of(store, *PLACES[place])
    rows = to_host(table.gather(to_device(ids, np.int32)))
    assert (rows.dtype, rows.shape) == (store.dtype, (7, *shape))
    assert rows.tobytes() == store[ids].tobytes()
    if PLACES[place][1] is not None:
        assert [table.take_hits(), table.take_hits()] == [np.isin(ids, PLACES[place][1]).sum(), 0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_are_counted_and_so_are_hits(dtype):
    ids = np.random.default_rng(3).integers(0, 9, 70).astype(dtype)
    where = np.array([0, -1, 3, -1, 1, 2, -1, -1, 4], np.int32)
    counts, hits = to_device(np.zeros(9), np.int32), to_device([5])
    for _ in range(2):
        launch(1).flat(count_ids, len(ids), to_device(ids, dtype), counts)
        launch(1).flat(count_placed, len(ids), to_device(where, np.int32), to_device(ids, dtype), hits)
    assert to_host(counts).tolist() == (2 * np.bincount(ids, minlength=9)).tolist()
    assert to_host(hits).tolist() == [5 + 2 * (where[ids] >= 0).sum()]


def test_labels_are_rows_of_one_entry():
    labels = np.arange(20)
    rows = DeviceRows(labels, DeviceStream(), thresholds=TESTED)
    assert to_host(rows.gather(to_device([4, 2]))).tolist() == [4, 2]
    assert to_host(rows.gather(to_device([9]))).tolist() == [9]


def test_more_rows_than_threads_and_wide_rows():
    store = make_store(np.float64, (70,))
    ids = np.random.default_rng(1).integers(0, 20, 40)
    assert to_host(DeviceRows(store, DeviceStream(), thresholds=TESTED).gather(to_device(ids))).tobytes() == store[ids].tobytes()


@pytest.mark.parametrize(("row_bytes", "width"), [(16, 8), (28, 4), (6, 2), (5, 1), (8, 8), (1, 1)])
def test_the_widest_word_that_divides_a_row(row_bytes, width):
    assert word_dtype(row_bytes).itemsize == width


def test_an_unknown_placement():
    with refused("'disk'", "placement feature store", "device pinned auto choose"):
        DeviceRows(np.zeros((3, 2)), DeviceStream(), placement="disk")
