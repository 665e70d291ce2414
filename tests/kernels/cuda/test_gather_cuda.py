"""Rows by vertex, from device memory, pinned host memory and both."""

import numpy as np
import pytest
from cuda_case import TESTED, _quick_simulator, needs_cuda, to_device, to_host  # noqa: F401

from hoptrain.engine import InputError
from hoptrain.engine.device import DeviceStream
from hoptrain.engine.device_store import DeviceRows
from hoptrain.kernels.cuda.gather import word_dtype

pytestmark = needs_cuda
PLACES = {
    "device": {"placement": "device"},
    "pinned": {"placement": "pinned"},
    "mixed": {"placement": "pinned", "hot": np.array([3, 17, 0])},
    "all hot": {"placement": "pinned", "hot": np.arange(20)[::-1]},
}


def make_store(dtype, shape):
    source = np.random.default_rng(0)
    return source.integers(0, 256, (20, *shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.float32, (7,)), (np.float32, (4,)), (np.float16, (3,)), (np.uint16, (8,)), (np.uint8, (5,)), (np.int64, (2, 3))],
)
def test_rows_to_the_bit(dtype, shape, place):
    store = make_store(dtype, shape)
    ids = np.array([19, 3, 3, 0, 17, 5, 1], np.int32)
    rows = to_host(DeviceRows(store, DeviceStream(), thresholds=TESTED, **PLACES[place]).gather(to_device(ids, np.int32)))
    assert (rows.dtype, rows.shape) == (store.dtype, (7, *shape))
    assert rows.tobytes() == store[ids].tobytes()


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
    with pytest.raises(InputError, match="placement is 'disk'"):
        DeviceRows(np.zeros((3, 2)), DeviceStream(), placement="disk")
