"""Rows selected by index are the same from memory and from the file, which hoptrain reads if the table exceeds free memory."""

from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset
from hoptrain.engine.datasets.small_graphs import SmallGraphs
from hoptrain.engine.features import take
from hoptrain.engine.features.quantized import quantize
from hoptrain.engine.storage.file_rows import FileRows


@pytest.fixture
def table(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6000, dtype=np.float32).reshape(1000, 6))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("free", [24_000, 23_999])
@pytest.mark.parametrize("ids", [[5, 3, 999, 3, 0], [], [7]])
def test_rows_in_any_order(table, monkeypatch, free, ids):
    read = []
    monkeypatch.setattr(take, "available_memory", lambda: free)
    monkeypatch.setattr(FileRows, "read", lambda *args, whole=FileRows.read: (read.append(1), whole(*args))[1])
    found = take.take_rows(table, np.array(ids, np.int64))
    np.testing.assert_array_equal(found, np.arange(6000).reshape(1000, 6)[ids])
    assert found.dtype == np.float32
    assert bool(read) == (free < table.nbytes)


def test_what_lies_in_memory_is_taken_from_there(monkeypatch):
    monkeypatch.setattr(take, "available_memory", lambda: 0)
    assert take.take_rows(np.arange(8).reshape(4, 2), np.array([3, 1])).tolist() == [[6, 7], [2, 3]]


def test_a_file_that_is_cut_off_is_one_line(table, tmp_path, monkeypatch):
    monkeypatch.setattr(take, "available_memory", lambda: 0)
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(5000)
    with refused("byte 5,000", f"{tmp_path / 'x.npy'} row 999 cut", "convert copy"):
        take.take_rows(table, np.array([999]))


def test_codes_become_numbers():
    rows = quantize(np.random.default_rng(0).random((30, 5)), "int4")
    ids = np.array([29, 3, 3])
    assert np.array_equal(take.take_rows(rows, ids), np.asarray(rows)[ids])


def test_many_small_graphs_are_read_from_their_files(tmp_path, monkeypatch):
    draw, ptr = np.random.default_rng(0), np.array([0, 4, 5, 9])
    edges = np.concatenate(
        [ptr[g] + draw.integers(0, ptr[g + 1] - ptr[g], (2, 6)) for g in (2, 0, 1)], axis=1
    )  # edge ids must differ from CSC positions
    nodes = Dataset(edge_index=edges, x=draw.random((9, 3)), edge_attr=draw.random((18, 2)))
    SmallGraphs(nodes=nodes, ptr=ptr, y=np.array([0, 1, 0]), splits={"train": np.arange(3)}).save(tmp_path / "graphs")
    graphs, items = SmallGraphs.open(tmp_path / "graphs"), np.array([2, 0])
    expected, read = graphs.join(items), set()
    monkeypatch.setattr(take, "available_memory", lambda: 0)
    monkeypatch.setattr(FileRows, "read", lambda self, *args, whole=FileRows.read: (read.add(Path(self.path).stem), whole(self, *args))[1])
    found = graphs.join(items)
    assert read == {"x", "edge_attr", "indices", "edge_ids"}
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
