"""Rows by their numbers are the same from memory and from the file, which is read where the table is larger than what is free."""

import numpy as np
import pytest

from hoptrain.engine import InputError
from hoptrain.engine.features.quantized import quantize
from hoptrain.engine.storage import take
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
    with pytest.raises(InputError, match=r"x\.npy ends at byte 5,000, and row 999 at .*cut off"):
        take.take_rows(table, np.array([999]))


def test_codes_become_numbers():
    rows = quantize(np.random.default_rng(0).random((30, 5)), "int4")
    ids = np.array([29, 3, 3])
    assert np.array_equal(take.take_rows(rows, ids), np.asarray(rows)[ids])
