"""Batches of quantised features transport codes, and give the values of the dequantised table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph
from hoptrain.engine.arrays import BFLOAT16
from hoptrain.engine.features.quantized import QuantizedRows, quantize
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.batch.transfer import as_tensor, expand_tensor, expanded_here

V, E, F, D = 300, 2000, 9, 3


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x, edge_attr = random.normal(0, 3, (V, F)).astype(np.float32), random.normal(0, 1, (E, D)).astype(np.float32)
    return Dataset(
        edge_index=random.integers(0, V, (2, E)), x=x, edge_attr=edge_attr, y=np.arange(V) % 4, splits={"train": np.arange(0, V, 3)}
    )


def narrowed(data, features):
    return replace(data, x=quantize(data.x, features), edge_attr=quantize(data.edge_attr, features))


def expanded(data):
    return replace(data, x=np.asarray(data.x), edge_attr=np.asarray(data.edge_attr))


def batches(data, **options):
    with SampleLoader(data, NeighborSampler([4, 3]), batch_size=32, **options) as loader:
        return [batch.map(np.array) for batch in loader]  # dequantises rows


def assert_same(ours, theirs):
    assert len(ours) == len(theirs) > 2
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.x, other.x)
        assert one.x.dtype == other.x.dtype == np.float32
        for block, expected in zip(one.blocks, other.blocks, strict=True):
            assert np.array_equal(block.edge_ids, expected.edge_ids)
            assert np.array_equal(block.edge_attr, expected.edge_attr)
        assert np.array_equal(one.y, other.y)


@pytest.mark.parametrize("features", ["int8", "int4"])
def test_batches_are_those_of_the_expanded_table(data, features):
    small = narrowed(data, features)
    assert_same(batches(small), batches(expanded(small)))


def test_the_queue_and_the_feature_cache_have_codes(data, tmp_path):
    data.save(tmp_path / "int8", features="int8")
    opened = Dataset.open(tmp_path / "int8")
    expected = batches(expanded(opened))
    assert_same(batches(opened, num_workers=1), expected)
    for prefetch_steps in (0, 8):
        assert_same(batches(opened, feature_cache="64KiB", prefetch_steps=prefetch_steps), expected)
    with SampleLoader(opened, NeighborSampler([4, 3]), batch_size=32, num_workers=1, feature_cache="64KiB") as loader:
        batch = next(iter(loader))
        assert loader.feature_cache.rows["x"].file.row_bytes == F
        assert batch.x.codes.shape == (len(batch.node_ids), F)
        assert np.array_equal(batch.x, expected[0].x)


def test_tensors_are_numbers(data):
    small = narrowed(data, "int4")
    for batch in SampleLoader(small, NeighborSampler([4, 3]), batch_size=32):
        assert isinstance(batch.x, QuantizedRows)
        tensors = batch.to("cpu")
        assert tensors.x.dtype == tensors.blocks[0].edge_attr.dtype == torch.float32
        assert np.array_equal(tensors.x, np.take(small.x, batch.node_ids, axis=0))
        assert np.array_equal(tensors.blocks[0].edge_attr, np.take(small.edge_attr, batch.ids_of(batch.blocks[0].edge_ids), axis=0))
        pyg = batch.to_pyg()
        assert np.array_equal(pyg.x, tensors.x)
        assert np.array_equal(pyg.edge_attr, np.take(small.edge_attr, pyg.e_id, axis=0))


def test_memory_of_tensors_is_used_again_and_not_before(data):
    rows = narrowed(data, "int8").x
    first, second = as_tensor(rows), as_tensor(rows[:7])
    assert first.data_ptr() != second.data_ptr()
    place, view = first.data_ptr(), first[3:]
    del first
    assert as_tensor(rows).data_ptr() != place  # a view still uses the buffer
    del view
    assert as_tensor(rows).data_ptr() == place
    assert np.array_equal(second, np.asarray(rows)[:7])


@pytest.mark.parametrize("features", ["int8", "int4"])
def test_a_device_gets_the_same_bits(data, features):
    rows = narrowed(data, features).x
    codes = torch.from_numpy(rows.codes)
    assert np.array_equal(expand_tensor(codes, rows.columns), rows)
    assert np.array_equal(expanded_here(QuantizedRows(codes, rows.columns)), rows)
    assert expanded_here(rows) is rows
    assert expanded_here(codes) is codes


def test_hetero_batches():
    random = np.random.default_rng(1)
    edges = {("a", "to", "b"): random.integers(0, 40, (2, 300)), ("b", "back", "a"): random.integers(0, 40, (2, 300))}
    x = {kind: random.random((40, width)).astype(np.float32) for kind, width in (("a", 5), ("b", 3))}
    whole = HeteroDataset(
        graph=HeteroGraph.from_edges({"a": 40, "b": 40}, edges), seed_type="b", x=x, y=np.zeros(40, int), splits={"train": np.arange(40)}
    )
    small = replace(whole, x={"a": quantize(x["a"], "int8"), "b": x["b"]})
    for batch in SampleLoader(small, HeteroSampler([3, 3], "b"), batch_size=20):
        tensors = batch.to("cpu")
        for kind, ids in batch.node_ids.items():
            assert np.array_equal(tensors.x[kind], np.take(small.x[kind], ids, axis=0))
            assert tensors.x[kind].dtype == torch.float32


def test_halves_travel_as_they_are(data, tmp_path):
    for features, dtype in (("float16", np.float16), ("bfloat16", BFLOAT16)):
        data.save(tmp_path / features, features=features)
        batch = next(iter(SampleLoader(Dataset.open(tmp_path / features), NeighborSampler([4, 3]), batch_size=32)))
        assert batch.x.dtype == dtype
        assert batch.to("cpu").x.dtype == getattr(torch, features)
