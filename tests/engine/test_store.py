import json
import os
import threading
import time

import numpy as np
import pytest

from hoptrain.engine import InputError, store
from hoptrain.engine.store import create_folder, kind_of, open_folder

KIND = "numbers"
ARRAYS = {
    "a": np.arange(12, dtype=np.int32).reshape(3, 4),
    "b": np.linspace(0, 1, 5, dtype=np.float16),
    "empty": np.empty((0, 3), np.uint8),
}


def write(path, arrays=ARRAYS, meta=None):
    with create_folder(path, KIND) as writer:
        for name, array in arrays.items():
            writer.add(name, array)
        writer.meta.update(meta or {})
    return path


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "folder", meta={"colour": "green"})


def edit_header(folder, change):
    header = json.loads((folder / "header.json").read_text())
    change(header)
    (folder / "header.json").write_text(json.dumps(header))


# Round trip.


@pytest.mark.parametrize("verify", [None, True, False])
def test_round_trip(folder, verify):
    arrays, meta = open_folder(folder, KIND, verify=verify)
    assert meta == {"colour": "green"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


def test_arrays_are_mapped_and_read_only(folder):
    array = open_folder(folder, KIND)[0]["a"]
    assert isinstance(array, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_array_written_in_place(tmp_path):
    with create_folder(tmp_path / "folder", KIND) as writer:
        array = writer.create("large", np.int64, (100, 2))
        array[:] = np.arange(200).reshape(100, 2)
    opened = open_folder(tmp_path / "folder", KIND, verify=True)[0]["large"]
    assert np.array_equal(opened, np.arange(200).reshape(100, 2))


def test_no_arrays(tmp_path):
    assert open_folder(write(tmp_path / "folder", {}), KIND) == ({}, {})


def test_parents_are_made(tmp_path):
    assert open_folder(write(tmp_path / "one" / "two"), KIND)


def test_checksum_is_that_of_the_file_in_pieces(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"123456789")
    assert store.crc32(tmp_path / "file") == 0xCBF43926  # the check value that defines CRC-32
    monkeypatch.setattr(store, "_PIECE", 4)
    assert store.crc32(tmp_path / "file") == 0xCBF43926


# Damage.


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("keep", [0, 10, -1])
def test_truncated_file(folder, keep, verify):
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[:keep])
    with pytest.raises(InputError, match=r"a\.npy is missing, truncated or no \.npy file: remove"):
        open_folder(folder, KIND, verify=verify)


def test_missing_file(folder):
    (folder / "b.npy").unlink()
    with pytest.raises(InputError, match=r"b\.npy is missing"):
        open_folder(folder, KIND)


def test_altered_byte(folder):
    data = bytearray((folder / "a.npy").read_bytes())
    data[-1] ^= 1
    (folder / "a.npy").write_bytes(data)
    with pytest.raises(InputError, match=r"a\.npy does not match its checksum.*convert it again"):
        open_folder(folder, KIND)
    assert open_folder(folder, KIND, verify=False)


def test_large_folders_are_verified_when_asked(folder, monkeypatch):
    data = bytearray((folder / "a.npy").read_bytes())
    data[-1] ^= 1
    (folder / "a.npy").write_bytes(data)
    monkeypatch.setattr(store, "VERIFY_LIMIT", 10)
    assert open_folder(folder, KIND)
    with pytest.raises(InputError, match="checksum"):
        open_folder(folder, KIND, verify=True)


@pytest.mark.parametrize("other", [ARRAYS["a"].astype(np.int64), ARRAYS["a"].reshape(4, 3)])
def test_file_of_another_dtype_or_shape(folder, other):
    np.save(folder / "a.npy", other)
    with pytest.raises(InputError, match=r"a\.npy holds .* its header says <i4 \[3, 4\]"):
        open_folder(folder, KIND, verify=False)


def test_pickles_are_not_read(folder):
    np.save(folder / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"no \.npy file"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("header", [b"PK\x03\x04", b"\x93NUMPY\x01\x00\x30\x00{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}"])
def test_an_array_that_is_none(folder, header):
    (folder / "a.npy").write_bytes(header)
    with pytest.raises(InputError, match=r"a\.npy is missing, truncated or no \.npy file"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("name", ["a.npy", "header.json"])
def test_a_fifo_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=r"a\.npy is missing|no readable header\.json"):
        open_folder(folder, KIND)
    assert kind_of(folder) == (None if name == "header.json" else KIND)


# Headers that are not ours.


def test_not_a_folder(tmp_path):
    with pytest.raises(InputError, match=r"absent is not a folder.*hoptrain data convert"):
        open_folder(tmp_path / "absent", KIND)


def test_foreign_folder(tmp_path):
    (tmp_path / "x.npy").touch()
    with pytest.raises(InputError, match=r"has no readable header\.json: it was not written by hoptrain"):
        open_folder(tmp_path, KIND)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", '{"format": 1}', "[" * 100_000])
def test_header_that_is_none(folder, text):
    (folder / "header.json").write_text(text)
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


def test_header_in_no_encoding(folder):
    (folder / "header.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("key", ["format", "version", "kind", "arrays", "meta"])
def test_missing_key(folder, key):
    edit_header(folder, lambda header: header.pop(key))
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("key", ["file", "dtype", "shape", "crc32"])
def test_missing_key_of_an_array(folder, key):
    edit_header(folder, lambda header: header["arrays"]["a"].pop(key))
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


@pytest.mark.parametrize(("key", "value"), [("format", "other"), ("version", 2), ("version", 0), ("kind", "words")])
def test_another_format_version_or_kind(folder, key, value):
    edit_header(folder, lambda header: header.update({key: value}))
    with pytest.raises(InputError, match=rf"{value}.*wanted is 'numbers' in hoptrain-arrays 1: convert it again"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("file", [5, None, ["a.npy"]])
def test_file_that_is_no_string(folder, file):
    edit_header(folder, lambda header: header["arrays"]["a"].update(file=file))
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("meta", [None, 5, []])
def test_meta_that_is_no_object(folder, meta):
    edit_header(folder, lambda header: header.update(meta=meta))
    with pytest.raises(InputError, match=r"no readable header\.json"):
        open_folder(folder, KIND)


@pytest.mark.parametrize("file", ["../evil.npy", "/evil.npy", "sub/evil.npy", ".."])
def test_files_outside_the_folder_are_refused(folder, file):
    np.save(folder.parent / "evil.npy", ARRAYS["a"])
    edit_header(folder, lambda header: header["arrays"]["a"].update(file=file, crc32=store.crc32(folder.parent / "evil.npy")))
    with pytest.raises(InputError, match=r"outside its folder|missing"):
        open_folder(folder, KIND)


# Writing.


def write_and_end_with(error, path):
    with create_folder(path, KIND) as writer:
        writer.add("a", ARRAYS["a"])
        writer.create("b", np.int8, (10,))
        raise error


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_a_crash_leaves_nothing_behind(tmp_path, error):
    with pytest.raises(error):
        write_and_end_with(error, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_appears_only_when_it_is_whole(tmp_path):
    with create_folder(tmp_path / "folder", KIND) as writer:
        writer.add("a", ARRAYS["a"])
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "header.json").exists()


def test_nothing_beside_the_folder(folder):
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]


HEX = "0123456789abcdef" * 2


def leftover(path, folder_age, file_age):
    """A folder with one file, both last changed so many hours ago."""
    path.mkdir()
    (path / "a.npy").touch()
    for changed, age in ((path / "a.npy", file_age), (path, folder_age)):
        os.utime(changed, (time.time() - age * 3600,) * 2)
    return path


@pytest.mark.parametrize("name", ["folder", "fol[d]er*"])
def test_leftovers_of_killed_writers_are_removed_after_a_day(tmp_path, name):
    old = leftover(tmp_path / f".{name}.{HEX}", 25, 25)
    kept = [
        leftover(tmp_path / f".{name}.{HEX[::-1]}", 23, 23),
        leftover(tmp_path / f".{name}.{HEX.replace('0', '1')}", 25, 1),  # a writer that fills a large array
        leftover(tmp_path / f".{name}.other.{HEX}", 25, 25),
        leftover(tmp_path / f".other.{HEX}", 25, 25),
        leftover(tmp_path / f".{name}.notes", 25, 25),
    ]
    write(tmp_path / name)
    assert not old.exists()
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / name, *kept])


def test_objects_are_refused_and_leave_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"), create_folder(tmp_path / "folder", KIND) as writer:
        writer.add("a", np.array([{}], dtype=object))
    assert list(tmp_path.iterdir()) == []


def test_meta_that_json_cannot_hold(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write(tmp_path / "folder", meta={"when": object()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", ["a file", "a folder of somebody else"])
def test_an_existing_destination_is_left_alone(tmp_path, existing):
    path = tmp_path / "folder"
    if existing == "a file":
        path.write_text("precious")
    else:
        path.mkdir()
        (path / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match=r"folder cannot be written.*does not exist yet"):
        write(path)
    assert (path if existing == "a file" else path / "notes.txt").read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_the_first_of_two_writers_wins(tmp_path):
    path = tmp_path / "folder"
    with create_folder(path, KIND) as slow:
        slow.add("a", np.zeros(3))
        write(path, {"a": np.ones(3)})
    assert open_folder(path, KIND)[0]["a"].tolist() == [1, 1, 1]
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_at_once(tmp_path):
    path, failures = tmp_path / "folder", []
    start = threading.Barrier(8)

    def writer(number):
        start.wait()
        try:
            write(path, {"a": np.full(1000, number), "b": np.full(1000, number)})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    arrays, _ = open_folder(path, KIND, verify=True)
    assert len(np.unique(arrays["a"])) == 1
    assert np.array_equal(arrays["a"], arrays["b"]), "one writer's arrays, whole"
    assert list(tmp_path.iterdir()) == [path]
