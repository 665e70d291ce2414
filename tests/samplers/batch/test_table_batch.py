"""Batches whose features are gathered when ``x`` is first read equal those whose features were gathered when they were made."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of

from hoptrain.engine import Dataset
from hoptrain.engine.features.quantized import quantize
from hoptrain.samplers import Block, NeighborSampler, SampleLoader
from hoptrain.samplers.batch.table_batch import TableRows
from hoptrain.trainers.models.sums import aggregate_joined, aggregate_with_own

V, E, F = 300, 2000, 9


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.normal(0, 3, (V, F)).astype(np.float32)
    return Dataset(edge_index=random.integers(0, V, (2, E)), x=x, y=np.arange(V) % 4, splits={"train": np.arange(0, V, 3)})


def loader_of(data, is_late=False, **options):
    loader = SampleLoader(data, NeighborSampler([4, 3]), batch_size=32, **options)
    if is_late:
        loader.gather_on_read()
    return loader


@pytest.mark.parametrize("threads", [1, 2])
def test_features_are_those_of_a_batch_that_gathers_them_at_once(data, threads):
    for late, plain in zip(loader_of(data, is_late=True, threads=threads), loader_of(data, threads=threads), strict=True):
        tensors = late.to("cpu")
        assert tensors.table_rows._rows is None  # nothing was gathered
        assert torch.equal(tensors.x, plain.to("cpu").x)
        assert np.array_equal(late.x, plain.x)
        assert late.arrays().keys() == plain.arrays().keys()
        assert all(np.array_equal(late.arrays()[name], array) for name, array in plain.arrays().items())


def test_whatever_reads_the_features_gets_them(data):
    for late, plain in zip(loader_of(data, is_late=True), loader_of(data), strict=True):
        assert np.array_equal(late.features[""], plain.x)
        assert np.array_equal(pickle.loads(pickle.dumps(late)).x, plain.x)
        assert np.array_equal(replace(late, seed=5).x, plain.x)
        assert np.array_equal(late.map(np.array).x, plain.x)
        assert np.array_equal(late.to("cpu").to_pyg().x, plain.x)
        assert repr(late.x) == repr(plain.x)
        assert late.with_rows({"x": plain.x + 1}).table_rows is None


def test_features_of_batches_that_are_kept_stay_theirs(data):
    late = list(loader_of(data, is_late=True))
    for batch in late:
        assert np.array_equal(batch.x, data.x[batch.node_ids])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_rows_of_the_table_are_those_of_gathered_rows(weighted, reduce):
    random = np.random.default_rng(1)
    degrees = np.array([0, 1, 3, 4, 5, 9, 70, 0, 2])
    indptr, ids = np.concatenate([[0], degrees.cumsum()]).astype(np.int32), random.permutation(50)[:20].astype(np.int32)
    edges = {"indptr": torch.from_numpy(indptr), "indices": torch.from_numpy(random.integers(0, 20, indptr[-1], dtype=np.int32))}
    block = Block(**edges, edge_ids=None, num_src=20)
    table = random.random((50, 19), np.float32)
    gathered, rows = torch.from_numpy(table[ids]), TableRows(table, ids, lambda number: table[ids[:number]])
    weights = torch.rand(block.num_edges) if weighted else None
    assert torch.equal(aggregate_joined(block, rows, weights, reduce), aggregate_joined(block, gathered, weights, reduce))
    for ours, theirs in zip(*(aggregate_with_own(block, x, weights, reduce) for x in (rows, gathered)), strict=True):
        assert torch.equal(ours, theirs)


MISTAKES = {
    "with workers": Mistake(
        lambda data: loader_of(data, is_late=True, num_workers=1), value="num_workers 1", rule="num_workers=0", remedy="not call"
    ),
    "int8": Mistake(
        lambda data: loader_of(replace(data, x=quantize(data.x, "int8")), is_late=True),
        value="int8",
        rule="float32",
        remedy="not call",
    ),
    "float16": Mistake(
        lambda data: loader_of(replace(data, x=data.x.astype(np.float16)), is_late=True),
        value="float16",
        rule="float32",
        remedy="not call",
    ),
    "without features": Mistake(lambda data: loader_of(replace(data, x=None), is_late=True), value="NoneType", rule="float32"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
