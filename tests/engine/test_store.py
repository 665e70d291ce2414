import json
import os
import threading
import time

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import store
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
    monkeypatch.setattr(store, "PIECE", 4)
    assert store.crc32(tmp_path / "file") == 0xCBF43926


# Damage.


def test_altered_byte(folder):
    data = bytearray((folder / "a.npy").read_bytes())
    data[-1] ^= 1
    (folder / "a.npy").write_bytes(data)
    with refused("a.npy", "match checksum altered damaged", "remove convert"):
        open_folder(folder, KIND)
    assert open_folder(folder, KIND, verify=False)


def test_large_folders_are_verified_when_asked(folder, monkeypatch):
    data = bytearray((folder / "a.npy").read_bytes())
    data[-1] ^= 1
    (folder / "a.npy").write_bytes(data)
    monkeypatch.setattr(store, "VERIFY_LIMIT", 10)
    assert open_folder(folder, KIND)
    with refused("a.npy", "match checksum altered damaged", "remove convert"):
        open_folder(folder, KIND, verify=True)


@pytest.mark.parametrize(("name", "rule"), [("a.npy", "missing truncated"), ("header.json", "no readable")])
def test_a_fifo_is_not_waited_for(folder, name, rule):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with refused(name, rule):
        open_folder(folder, KIND)
    assert kind_of(folder) == (None if name == "header.json" else KIND)


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
    """Return a folder with one file, last changed ``folder_age`` and ``file_age`` hours ago."""
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
        leftover(tmp_path / f".{name}.{HEX.replace('0', '1')}", 25, 1),  # a writer that is still filling a large array
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
    with refused(str(path), "cannot written", "exist yet"):
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


# Damaged files and headers that are not ours.


def truncated(folder, keep, verify):
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[:keep])
    open_folder(folder, KIND, verify=verify)


def without_a_file(folder):
    (folder / "b.npy").unlink()
    open_folder(folder, KIND)


def with_another_array(folder, other):
    np.save(folder / "a.npy", other)
    open_folder(folder, KIND, verify=False)


def with_a_pickle(folder):
    np.save(folder / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    open_folder(folder, KIND)


def with_bytes(folder, name, data):
    (folder / name).write_bytes(data)
    open_folder(folder, KIND)


def foreign(folder):
    (folder / "x.npy").touch()
    open_folder(folder, KIND)


def with_header(folder, change):
    """Open a folder whose header is changed."""
    header = json.loads((folder / "header.json").read_text())
    change(header)
    (folder / "header.json").write_text(json.dumps(header))
    open_folder(folder, KIND)


def with_a_file_elsewhere(folder, file):
    np.save(folder.parent / "evil.npy", ARRAYS["a"])
    checksum = store.crc32(folder.parent / "evil.npy")
    with_header(folder, lambda header: header["arrays"]["a"].update(file=file, crc32=checksum))


NO_ARRAY = {"value": "a.npy", "rule": "missing truncated no .npy", "remedy": "remove convert"}
NO_HEADER = {"value": "header.json", "rule": "no readable written hoptrain", "remedy": "convert"}

FILES = {
    **{
        f"a file cut off at {keep}, verify={verify}": Mistake(
            lambda folder, keep=keep, verify=verify: truncated(folder, keep, verify), **NO_ARRAY
        )
        for keep in (0, 10, -1)
        for verify in (True, False)
    },
    "an array without its file": Mistake(without_a_file, value="b.npy", rule="missing truncated no .npy", remedy="remove convert"),
    **{
        f"a file that holds {found}": Mistake(
            lambda folder, other=other: with_another_array(folder, other),
            value=found,
            rule="a.npy header <i4 [3, 4]",
            remedy="convert",
        )
        for found, other in (("<i8 [3, 4]", ARRAYS["a"].astype(np.int64)), ("<i4 [4, 3]", ARRAYS["a"].reshape(4, 3)))
    },
    "a pickle": Mistake(with_a_pickle, **NO_ARRAY),
    "a zip file": Mistake(lambda folder: with_bytes(folder, "a.npy", b"PK\x03\x04"), **NO_ARRAY),
    "an array of a negative length": Mistake(
        lambda folder: with_bytes(folder, "a.npy", b"\x93NUMPY\x01\x00\x30\x00{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}"),
        **NO_ARRAY,
    ),
}

HEADERS = {
    "a path to nothing": Mistake(
        lambda tmp_path: open_folder(tmp_path / "absent", KIND), value="absent", rule="not folder", remedy="hoptrain data convert import"
    ),
    "a foreign folder": Mistake(lambda tmp_path: foreign(tmp_path), **NO_HEADER),
    **{
        f"a header of {text[:20]!r}": Mistake(lambda folder, text=text: with_bytes(folder, "header.json", text.encode()), **NO_HEADER)
        for text in ("", "{", "[]", "null", "5", '{"format": 1}', "[" * 100_000)
    },
    "a header in no encoding": Mistake(lambda folder: with_bytes(folder, "header.json", b"\xff\xfe\xfa"), **NO_HEADER),
    **{
        f"a header without {key}": Mistake(lambda folder, key=key: with_header(folder, lambda header: header.pop(key)), **NO_HEADER)
        for key in ("format", "version", "kind", "arrays", "meta")
    },
    **{
        f"an array without {key} in the header": Mistake(
            lambda folder, key=key: with_header(folder, lambda header: header["arrays"]["a"].pop(key)), **NO_HEADER
        )
        for key in ("file", "dtype", "shape", "crc32")
    },
    **{
        f"a header of {key} {value}": Mistake(
            lambda folder, key=key, value=value: with_header(folder, lambda header: header.update({key: value})),
            value=shown,
            rule="needed 'numbers' hoptrain-arrays 1",
            remedy="convert",
        )
        for key, value, shown in (
            ("format", "other", "format other 1"),
            ("version", 2, "hoptrain-arrays 2"),
            ("version", 0, "hoptrain-arrays 0"),
            ("kind", "words", "'words'"),
        )
    },
    **{
        f"a file of an array that is {file}": Mistake(
            lambda folder, file=file: with_header(folder, lambda header: header["arrays"]["a"].update(file=file)), **NO_HEADER
        )
        for file in (5, None, ["a.npy"])
    },
    **{
        f"meta of {meta}": Mistake(lambda folder, meta=meta: with_header(folder, lambda header: header.update(meta=meta)), **NO_HEADER)
        for meta in (None, 5, [])
    },
    **{
        f"a file named {file}": Mistake(
            lambda folder, file=file: with_a_file_elsewhere(folder, file), value=file, rule="header.json outside folder", remedy="convert"
        )
        for file in ("../evil.npy", "/evil.npy", "sub/evil.npy")
    },
    "a file that is the folder above": Mistake(
        lambda folder: with_a_file_elsewhere(folder, ".."), value="'..'", rule="header.json outside folder", remedy="convert"
    ),
}

MISTAKES = FILES | HEADERS


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
