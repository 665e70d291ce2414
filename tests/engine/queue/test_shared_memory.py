"""Arrays are passed to workers by reference: as a file that is mapped again, or as an inherited anonymous file."""

import os
import pickle

import numpy as np
from cases.mistakes import refused

from hoptrain.engine import Dataset
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, anonymous_file, check_whole, dumps, mapped_files, reserve, shared_array

LARGE = SHARE_FROM_BYTES // 8


def round_trip(value):
    """Return an array as a worker receives it.

    Workers inherit file descriptors, so the numbers of the descriptors stay valid.
    """
    job, descriptors = dumps(value)
    try:
        return job, descriptors, pickle.loads(job)
    finally:
        for fd in descriptors:
            os.close(fd)


def test_small_arrays_travel_by_value():
    _, descriptors, loaded = round_trip({"a": np.arange(10)})
    assert descriptors == []
    assert loaded["a"].tolist() == list(range(10))


def test_large_arrays_are_mapped_read_only():
    array = np.arange(LARGE).reshape(-1, 8)
    job, descriptors, loaded = round_trip([array, array])
    assert len(descriptors) == 1, "one array, one file, however often it is referred to"
    assert len(job) < 1000
    np.testing.assert_array_equal(loaded[0], array)
    assert not loaded[0].flags.writeable
    assert loaded[0] is loaded[1]


def test_a_mapped_file_is_mapped_again(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(LARGE))
    array = np.load(tmp_path / "x.npy", mmap_mode="r")
    job, descriptors, loaded = round_trip(array)
    assert descriptors == []
    assert str(tmp_path).encode() in job
    np.testing.assert_array_equal(loaded, array)


def test_a_data_set_on_disk_is_sent_by_name(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.queue.shared_memory.SHARE_FROM_BYTES", 1)
    dataset.save(tmp_path / "data")
    opened = Dataset.open(tmp_path / "data")
    job, descriptors, (graph, x) = round_trip((opened.graph, opened.x))
    assert descriptors == []
    assert job.count(str(tmp_path).encode()) == 4
    np.testing.assert_array_equal(graph.indices, dataset.graph.indices)
    np.testing.assert_array_equal(x, dataset.x)


def test_a_mapped_file_that_is_cut_off_is_named_before_it_is_read(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(20_000))
    array = np.load(path, mmap_mode="r")
    text, descriptors = dumps(array)
    assert not descriptors
    files = mapped_files(array, np.arange(3))
    check_whole(files)
    os.truncate(path, 5000)
    with refused("5,000 bytes", f"{path} had 160,128 cut", "copy"):
        check_whole(files)
    with refused(str(path), "cannot mapped removed cut", "copy"):
        pickle.loads(text)
    path.unlink()
    with refused(str(path), "cannot mapped removed cut", "copy"):
        pickle.loads(text)


def test_of_a_mapped_file_that_is_removed_the_mapping_stays(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(20_000))
    files = mapped_files(np.load(path, mmap_mode="r"))
    path.unlink()
    check_whole(files)
    assert files[0][-1] == 19_999


def test_slices_of_a_mapped_file_keep_their_contents(tmp_path):
    """A slice of a memory map keeps its contents in a worker, although NumPy gives it the file offset of the whole array."""
    np.save(tmp_path / "x.npy", np.arange(3 * LARGE))
    array = np.load(tmp_path / "x.npy", mmap_mode="r")[LARGE:]
    _, _, loaded = round_trip(array)
    np.testing.assert_array_equal(loaded, array)


def test_reserve_says_what_to_change_when_memory_is_short(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    fd = anonymous_file("test")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with refused("3 MiB", "cannot reserve shared memory space", "smaller batch_size num_workers prefetch buffer_dir", MemoryError):
        reserve(fd, 3 << 20)
    os.close(fd)


def test_anonymous_files_have_no_name_and_are_private():
    before = set(os.listdir("/dev/shm"))
    fd = anonymous_file("test")
    reserve(fd, 4096)
    assert set(os.listdir("/dev/shm")) == before
    assert os.get_inheritable(fd) is False
    os.close(fd)


def test_a_shared_array_is_seen_by_who_got_it_before():
    array = shared_array("hoptrain-test", (LARGE,), np.int64)
    job, descriptors, seen = round_trip(array)
    assert (descriptors, len(job) < 1000) == ([], True)
    assert not seen.any()
    array[5] = 7
    assert seen[5] == 7
