"""A custom feature store can replace the feature array."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain import Dataset, HeteroDataset, HeteroGraph
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.storage.file_rows import StoredRows
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader


class Kept(StoredRows):
    """A feature store that keeps rows in a dictionary."""

    def __init__(self, table, path="kept"):
        self.path, self.shape, self.dtype = path, table.shape, table.dtype
        self.row_bytes = table[0].nbytes
        self.rows = dict(enumerate(table))

    def read(self, rows, slots, out, meanwhile=None):
        assert (np.diff(rows) > 0).all()
        found = np.array([self.rows[row] for row in rows.tolist()], self.dtype)
        out[slots] = found.view(np.uint8).reshape(len(rows), self.row_bytes)
        if meanwhile is not None:
            meanwhile()


def stored(data):
    return Dataset(graph=data.graph, x=Kept(data.x), y=data.y, splits=data.splits)


@pytest.mark.parametrize(
    "options", [{}, {"feature_cache": "9KiB", "num_workers": 1}, {"prefetch_steps": 0}], ids=["auto", "cached", "uncached"]
)
def test_batches_are_those_of_an_array(dataset, opened, options):
    for data, own in ((dataset, {}), (stored(dataset), options)):
        opened.append(SampleLoader(data, NeighborSampler([3, 2]), batch_size=16, seed=1, **own))
    for ours, theirs in zip(opened[1], opened[0], strict=True):
        assert np.array_equal(ours.node_ids, theirs.node_ids)
        assert ours.x.dtype == np.float32
        assert np.array_equal(ours.x, theirs.x)


def test_of_a_heterogeneous_graph(opened):
    draw = np.random.default_rng(0)
    graph = HeteroGraph.from_edges({"user": 9, "item": 5}, {("user", "buys", "item"): (np.arange(60) % 9, np.arange(60) % 5)})
    x, options = {"user": draw.random((9, 3))}, {"graph": graph, "seed_type": "item", "y": np.arange(5), "splits": {"train": np.arange(5)}}
    for data, own in ((HeteroDataset(x=x, **options), {}), (HeteroDataset(x={"user": Kept(x["user"])}, **options), {"prefetch_steps": 0})):
        opened.append(SampleLoader(data, HeteroSampler([3], "item"), batch_size=5, **own))
    plain, kept = (next(iter(loader)) for loader in opened)
    assert np.array_equal(plain.x["user"], kept.x["user"])


def test_evaluation_takes_rows(dataset):
    ids = np.array([5, 3, 5, 0])
    assert np.array_equal(take_rows(stored(dataset).x, ids), dataset.x[ids])


def test_rows_of_other_nodes_are_refused(dataset):
    with refused(str(dataset.x[:-1].shape), "x shape features one row each nodes", "reshape x"):
        Dataset(graph=dataset.graph, x=Kept(dataset.x[:-1]), y=dataset.y)


def test_a_folder_holds_arrays_alone(dataset, tmp_path):
    with refused("x", "Kept only arrays written", "take rows array"):
        stored(dataset).save(tmp_path / "data")
    assert stored(dataset).in_memory().x.path == "kept"
