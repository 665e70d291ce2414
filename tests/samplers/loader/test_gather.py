"""Gathered feature rows equal NumPy's indexing."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.engine import BFLOAT16, Dataset, to_bfloat16
from hoptrain.kernels.cpu import gather as kernels
from hoptrain.samplers import NeighborSampler, SampleLoader, Workspace
from hoptrain.samplers.loader.gather import gather_rows, gather_rows_of_two


@pytest.mark.parametrize("threads", [None, 1, 2, 3])
@pytest.mark.parametrize("width", [0, 1, 3, 8, 100, 602])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16, np.uint8, np.float64])
def test_rows_are_moved_as_stored(dtype, width, threads):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    store = rng.integers(0, 256, (50, width * dtype.itemsize), dtype=np.uint8).view(dtype).reshape(50, width)
    for number in (0, 1, 7, 8, 9, 100):
        ids = rng.integers(0, 50, number).astype(np.int32)
        out = np.empty((number, width), dtype)
        gather_rows(store, ids, out, Workspace(threads) if threads else None)
        assert out.tobytes() == store[ids].tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("dtype", "width"), [(np.uint8, 3), (np.float32, 100), (np.float16, 5), (np.float64, 300)])
def test_rows_of_two_stores(dtype, width, threads):
    rng = np.random.default_rng(0)
    store, other = (rng.integers(0, 256, (size, width)).astype(dtype) for size in (50, 30))
    for number in (0, 1, 7, 2000):
        ids = rng.integers(-30, 50, number).astype(np.int32)
        out = np.empty((number, width), dtype)
        gather_rows_of_two(store, other, ids, out, Workspace(threads))
        np.testing.assert_array_equal(out, np.concatenate([store, other[::-1]])[ids])


@pytest.mark.parametrize("width", [3, 301, 50, 5000])
@pytest.mark.parametrize("dtype", [np.uint64, np.uint32, np.uint16, np.uint8])
def test_parts(dtype, width):
    check_part(kernels.gather_rows, dtype, width, 300, (2, 299))


@pytest.mark.parametrize("width", [1, 3, 8, 50, 5000])
@pytest.mark.parametrize("offset", range(9))
def test_parts_past_the_caches(offset, width):
    """Rows gathered past the caches are written into their part of the output only.

    Rows start anywhere in a cache line, other parts of which another thread may write.
    """
    for part in ((0, 300), (2, 299), (3, 4), (5, 5), (7, 18)):
        check_part(kernels.gather_rows_past_caches, np.uint64, width, 300, part, offset)


def check_part(kernel, dtype, width, number, part, offset=0):
    rng = np.random.default_rng(0)
    store = rng.integers(0, 256, (40, width)).astype(dtype)
    ids = rng.integers(0, 40, number).astype(np.int32)
    out = np.zeros(offset + number * width, dtype)[offset:].reshape(number, width)
    expected = out.copy()
    expected[slice(*part)] = store[ids[slice(*part)]]
    kernel(store, ids, *part, out)
    np.testing.assert_array_equal(out, expected)


def test_a_copy_larger_than_the_caches():
    store = np.random.default_rng(0).random((1000, 1000))
    ids = np.arange(3000, dtype=np.int32)[::-1] % 1000
    out = np.empty((3000, 1000))
    gather_rows(store, ids, out, Workspace(2))
    np.testing.assert_array_equal(out, store[ids])


def test_labels_and_rows_of_more_dimensions():
    ids = np.array([4, 0, 4])
    for store in (np.arange(5), np.arange(60).reshape(5, 3, 4)):
        out = np.empty((3, *store.shape[1:]), store.dtype)
        gather_rows(store, ids, out)
        np.testing.assert_array_equal(out, store[ids])


def test_a_read_only_store_and_int64_ids():
    store = np.arange(12.0).reshape(4, 3)
    store.flags.writeable = False
    out = np.empty((2, 3))
    gather_rows(store, np.array([3, 1]), out)
    np.testing.assert_array_equal(out, store[[3, 1]])


def test_rounding_to_bfloat16_is_torch_s():
    rng = np.random.default_rng(0)
    values = np.r_[
        rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32),
        np.array([0.0, -0.0, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, 1e-40], np.float32),
    ]
    with np.errstate(invalid="ignore"):
        rounded = to_bfloat16(values).view(np.int16)
    expected = torch.from_numpy(values).bfloat16()
    is_nan = torch.isnan(expected).numpy()
    np.testing.assert_array_equal(rounded[~is_nan], expected.view(torch.int16).numpy()[~is_nan])
    assert torch.isnan(torch.from_numpy(rounded).view(torch.bfloat16)).numpy()[is_nan].all()


def test_bfloat16_features_from_disk_to_tensor(dataset, tmp_path):
    data = Dataset(name="half", graph=dataset.graph, x=to_bfloat16(dataset.x), y=dataset.y, splits=dataset.splits, num_classes=3)
    data.save(tmp_path / "half")
    data = Dataset.open(tmp_path / "half")
    loader = SampleLoader(data, NeighborSampler([2]), batch_size=50, num_workers=1, shuffle=False)
    batch = next(iter(loader))
    nodes = np.array(batch.node_ids)
    x = batch.to("cpu").x
    assert x.dtype == torch.bfloat16
    torch.testing.assert_close(x, torch.from_numpy(dataset.x[nodes]).bfloat16(), rtol=0, atol=0)
    del batch, x
    loader.close()


def test_bfloat16_features_are_finite(dataset):
    x = dataset.x.copy()
    x[3, 2] = np.inf
    with refused("x[3, 2]", "bad features finite", "np.nan_to_num(x)"):
        Dataset(name="bad", graph=dataset.graph, x=to_bfloat16(x), y=dataset.y, splits=dataset.splits, num_classes=3)


def test_rows_that_are_not_contiguous():
    table, ids = np.arange(350.0).reshape(50, 7), np.array([3, 1, 49, 3])
    for store in (table[:, 0], table[:, ::2], np.asfortranarray(table)):
        out = np.empty((4, *store.shape[1:]))
        gather_rows(store, ids, out)
        assert np.array_equal(out, store[ids])
