import os
import socket
import zipfile

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine.files.untrusted import map_npy, npz_members, npz_shapes, open_regular, parse_json, read_json, read_npz


def header(shape, descr="'<f4'"):
    """Return the header bytes of a .npy file with the given shape, without data."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def packed(path, content, name="x.npy"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


HOSTILE = {
    "a shape of 2**70": (header(f"({2**70},)"), f"({2**70},)", "shorter shape float32"),
    "a negative length": (header("(-1,)"), "(-1,)", "shape"),
    "a length that is no integer": (header("(1.5,)"), "(1.5,)", "no header .npy"),
    "a length that is a truth value": (header("(True,)"), "(True,)", "shape"),
    "more than is there": (header("(1000, 1000000)") + bytes(1000), "(1000, 1000000)", "shorter shape float32"),
    "objects": (header("(3,)", "'|O'") + bytes(100), "object", "holds not numbers"),
    "nothing to a row": (header(f"({2**70},)", "'|V0'"), "|V0", "holds not numbers"),
    "nested brackets": (header("(" * 9000), "header", "no .npy file"),
    "many signs": (header(f"({'-' * 9000}1,)"), "header", "no .npy file"),
    "an archive": (b"PK\x03\x04" + bytes(100), "header", "no .npy file"),
    "nothing": (b"", "header", "no .npy file"),
    "half a header": (header("(3,)")[:30], "header", "no .npy file"),
    "a type that is none": (header("(3,)", "'<x9'"), "'<x9'", "no header .npy"),
}


@pytest.mark.parametrize(("content", "value", "words"), HOSTILE.values(), ids=HOSTILE.keys())
def test_headers_are_checked_before_anything_is_mapped_or_allocated(tmp_path, content, value, words):
    (tmp_path / "x.npy").write_bytes(content)
    with refused(value, words, error=ValueError):
        map_npy(tmp_path / "x.npy")
    archive = packed(tmp_path / "x.npz", content)
    for read in (read_npz, npz_shapes):
        with refused(value, words, error=ValueError):
            read(archive)


@pytest.mark.parametrize(
    "array", [np.arange(12).reshape(3, 4), np.asfortranarray(np.eye(3, 5)), np.array("text"), np.zeros((0, 3)), np.float32(7)]
)
def test_arrays_are_those_that_numpy_wrote(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", x=array, y=np.arange(3))
    mapped, read = map_npy(tmp_path / "x.npy"), read_npz(tmp_path / "x.npz", ["x"])
    assert [*read] == ["x"]
    for found in (mapped, read["x"]):
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape, found.flags.f_contiguous) == (array.dtype, array.shape, array.flags.f_contiguous)
    assert not mapped.flags.writeable
    assert npz_shapes(tmp_path / "x.npz") == {"x": array.shape, "y": (3,)}


def test_the_map_keeps_the_name_of_the_file_itself(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "link.npy").symlink_to("x.npy")
    assert map_npy(tmp_path / "link.npy").filename == str(tmp_path / "x.npy")


def fifo(path):
    os.mkfifo(path)


def listening(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


@pytest.mark.parametrize("make", [fifo, listening, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)])
@pytest.mark.parametrize("read", [open_regular, read_json, map_npy, read_npz, npz_members])
def test_nothing_but_regular_files_is_read(tmp_path, monkeypatch, make, read):
    """Readers reject FIFOs, sockets, folders, devices and circular links; opening a FIFO without a writer would block forever."""
    monkeypatch.chdir(tmp_path)  # socket paths have a maximum length
    make(tmp_path.joinpath("x").relative_to(tmp_path) if make is listening else tmp_path / "x")
    with pytest.raises((OSError, ValueError), match=r"it is no regular file|Is a directory|No such device|symbolic links"):
        read(tmp_path / "x")


def test_an_archive_that_is_damaged(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(1000))
    content = path.read_bytes()
    place = content.index(np.arange(500, 510).tobytes())
    for damaged in (content[:place] + b"?" + content[place + 1 :], content[:500], b"text", b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"CRC|not a zip"):
            read_npz(path)


def test_an_archive_that_lacks_a_name_or_has_others(tmp_path):
    path = packed(tmp_path / "x.npz", b"notes", "notes.txt")
    assert read_npz(path) == npz_members(path) == {}
    with refused("x, y", "no", error=ValueError):
        read_npz(path, ["x", "y"])


def test_json(tmp_path, monkeypatch):
    path = tmp_path / "header.json"
    path.write_text('{"a": [1, 2]}')
    assert read_json(path) == {"a": [1, 2]}
    for text in ("[" * 100_000, '{"a":' * 100_000):
        path.write_text(text)
        for read, source in ((read_json, path), (parse_json, text)):
            with refused("brackets", "nested deeply", error=ValueError):
                read(source)
    path.write_text("{")
    for read, source in ((read_json, path), (parse_json, "{")):
        with pytest.raises(ValueError, match="property name"):
            read(source)
    monkeypatch.setattr("hoptrain.engine.files.untrusted.MOST_JSON", 10)
    path.write_text(f'"{"x" * 10}"')
    with refused("0 MiB", "larger", error=ValueError):
        read_json(path)
