"""Rows read from a file equal the requested ones, for any width; a failing file or device is reported in one line."""

import gc
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset
from hoptrain.engine.storage import file_rows, read_buffers
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.read_buffers import ReadBuffers


@pytest.fixture(params=["at once", "by threads"], autouse=True)
def way(request, monkeypatch):
    """Read as the system permits, with all reads in flight by one thread, and then as on a system that forbids asynchronous reads."""
    monkeypatch.setattr(read_buffers, "_SPARE", {True: [], False: []})
    if request.param == "by threads":
        monkeypatch.setattr(file_rows, "has_at_once", lambda: False)
    elif not read_buffers.has_at_once():
        pytest.skip("this system permits no asynchronous reads")
    return request.param


def saved(folder, table):
    """Return a table in a file, and its memory map."""
    np.save(folder / "x.npy", table)
    return np.load(folder / "x.npy", mmap_mode="r")


def check(mapped, rows):
    """Check that rows are read into the given slots, in any order."""
    file = FileRows.of(mapped, "features")
    slots = np.random.default_rng(1).permutation(len(rows) + 3)[: len(rows)].astype(np.int32)
    out = np.full((len(rows) + 3, file.row_bytes), 7, np.uint8)
    file.read(rows, slots, out)
    np.testing.assert_array_equal(out[slots].view(mapped.dtype).reshape(-1, *mapped.shape[1:]), mapped[rows])
    assert (np.delete(out, slots, axis=0) == 7).all()
    return file


@pytest.mark.parametrize("width", [1, 3, 100, 128, 1024, 5000, 300_000])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_rows_of_any_width(tmp_path, width, share):
    draw = np.random.default_rng(width)
    table = draw.integers(0, 256, (max(12, min(3000, 4_000_000 // width)), width), dtype=np.uint8)
    rows = np.flatnonzero(draw.random(len(table)) < share)
    check(saved(tmp_path, table), rows)


def test_no_row_and_the_last_one(tmp_path):
    mapped = saved(tmp_path, np.arange(5000, dtype=np.float32).reshape(1000, 5))
    assert check(mapped, np.array([], np.int64)).num_reads == 0
    assert check(mapped, np.array([999])).num_reads == 1


def test_the_file_is_closed_with_the_last_reference(tmp_path):
    mapped = saved(tmp_path, np.arange(5000, dtype=np.float32).reshape(1000, 5))

    def num_open():
        return sum(own.exists() and own.samefile(tmp_path / "x.npy") for own in Path("/proc/self/fd").iterdir())

    before = num_open()
    file = check(mapped, np.array([999]))
    assert num_open() == before + 1
    del file
    gc.collect()
    assert num_open() == before


def test_neighbouring_rows_are_one_read(tmp_path):
    mapped = saved(tmp_path, np.arange(1 << 20, dtype=np.float32).reshape(-1, 128))
    file = check(mapped, np.arange(0, 512))
    assert (file.num_reads, file.num_bytes) == (
        2,
        512 * 512 + 2 * 4096,
    )  # the header shifts rows by less than a block, so one block is read twice
    far = check(mapped, np.arange(0, 2048, 100))  # 50 KiB apart
    assert far.num_reads == 21


def test_a_file_system_without_direct_reads(tmp_path, monkeypatch):
    mapped = saved(tmp_path, np.arange(5000, dtype=np.float32).reshape(1000, 5))
    whole = os.open

    def without(path, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return whole(path, flags, *rest)

    monkeypatch.setattr(os, "open", without)
    check(mapped, np.arange(3, 1000, 7))


def test_work_continues_while_it_reads(tmp_path):
    mapped = saved(tmp_path, np.arange(100, dtype=np.float32).reshape(10, 10))
    file, called = FileRows.of(mapped, "features"), []
    file.read(np.arange(10), np.arange(10), np.empty((10, 40), np.uint8), lambda: called.append(1))
    assert called == [1]


def test_pickled_it_is_a_path(tmp_path):
    mapped = saved(tmp_path, np.arange(100, dtype=np.float32).reshape(10, 10))
    file = pickle.loads(pickle.dumps(check(mapped, np.arange(4))))
    out = np.empty((1, 40), np.uint8)
    file.read(np.array([9]), np.array([0]), out)
    np.testing.assert_array_equal(out.view(np.float32)[0], mapped[9])


def test_features_of_a_saved_data_set(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    check(Dataset.open(tmp_path / "data").x, np.arange(0, dataset.graph.num_nodes, 3))
    with refused("features", "memory rows read file", "save data.save folder"):
        FileRows.of(dataset.x, "features")


def all_rows(mapped):
    file = FileRows.of(mapped, "features")
    file.read(np.arange(len(mapped)), np.arange(len(mapped)), np.empty((len(mapped), file.row_bytes), np.uint8))


def test_a_file_that_is_cut_off_or_gone_is_one_line(tmp_path):
    mapped = saved(tmp_path, np.zeros((1000, 100), np.float32))
    os.truncate(tmp_path / "x.npy", 200_000)
    with refused("byte 200,000", f"{tmp_path / 'x.npy'} row cut", "convert copy"):
        all_rows(mapped)
    (tmp_path / "x.npy").unlink()
    with refused("No such file", f"{tmp_path / 'x.npy'} cannot opened read", "restore"):
        all_rows(mapped)


def test_a_read_that_fails_is_one_line(tmp_path, monkeypatch):
    mapped = saved(tmp_path, np.zeros((1000, 100), np.float32))
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened(tmp_path, os.O_RDONLY))  # a folder can be opened, but not read
    with refused(str(tmp_path / "x.npy"), "cannot read byte directory", "check disk copy"):
        all_rows(mapped)


def test_a_device_that_stops_is_one_line(tmp_path, monkeypatch):
    mapped = saved(tmp_path, np.zeros((1000, 100), np.float32))
    monkeypatch.setattr(FileRows, "stall_s", 0.2)
    monkeypatch.setattr(file_rows, "LOOK_S", 0.05)
    end = threading.Event()
    monkeypatch.setattr(FileRows, "_read_piece", lambda *given: end.wait(20))
    with refused("0.2 s", f"{tmp_path / 'x.npy'} read ended device", "dmesg move folder"):
        all_rows(mapped)
    end.set()


def test_a_slow_device_is_no_stopped_one(tmp_path, monkeypatch):
    mapped = saved(tmp_path, np.zeros((1000, 100), np.float32))
    monkeypatch.setattr(FileRows, "stall_s", 0.4)
    monkeypatch.setattr(file_rows, "LOOK_S", 0.02)
    read_piece, late = FileRows._read_piece, threading.Event()

    def slowly(self, *given):
        for _ in range(8):  # reads end one after another, for longer in all than a stopped device is given
            late.wait(0.1)
            self._num_done += 1
        return read_piece(self, *given)

    monkeypatch.setattr(FileRows, "_read_piece", slowly)
    all_rows(mapped)


def test_rows_arrive_without_a_context(tmp_path, way):
    """Asynchronous reads that the kernel refuses, as in a fork of the process that made the context, are replaced by plain ones."""
    mapped = saved(tmp_path, np.arange(1 << 20, dtype=np.float32).reshape(-1, 128))
    if way == "at once":
        own = ReadBuffers.take(True, 1)
        read_buffers.aio.destroy(own.context)
        own.give_back()
    check(mapped, np.arange(0, 8192, 100))


def test_tables_of_a_process_share_their_buffers(tmp_path, way):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        check(saved(tmp_path / name, np.arange(5000, dtype=np.float32).reshape(1000, 5)), np.arange(0, 1000, 400))
    assert sum(len(own.buffers) for own in read_buffers._SPARE[way == "at once"]) == (read_buffers.DEPTH if way == "at once" else 1)


def test_reads_go_past_the_page_cache(tmp_path):
    """Reads use O_DIRECT if the file system of temporary files supports it."""
    file = check(saved(tmp_path, np.zeros((1000, 100), np.float32)), np.arange(1000))
    try:
        os.close(os.open(file.path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("the file system of temporary files has no direct reads")
    [own] = [fd for fd in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{fd}").resolve() == Path(file.path).resolve()]
    flags = int(Path(f"/proc/self/fdinfo/{own}").read_text().split("flags:")[1].split()[0], 8)
    assert flags & os.O_DIRECT
