"""Readers for untrusted files. They do not block on special files, and check headers before memory is allocated or mapped.

All functions raise ``OSError`` or ``ValueError`` with a short reason. The caller adds the file's name and the remedy.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from hoptrain.engine.arrays import Array

MOST_JSON = 64 << 20
"""Maximum size in bytes of a JSON file."""
_PIECE = 1 << 20


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading. FIFOs, devices and sockets raise an error, because they might block.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    return open(os.fspath(path), "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else OSError("it is no regular file")
    return descriptor


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def read_json(path: str | Path) -> Any:
    """Read a small JSON file.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: the file is not JSON, or larger than 64 MiB.
    """
    with open_regular(path) as file:
        content = file.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        raise ValueError(f"the file is larger than {MOST_JSON >> 20} MiB")
    return parse_json(content)


def map_npy(path: str | Path) -> np.memmap[Any, Any]:
    """Memory-map a ``.npy`` file, read-only.

    Raises:
        OSError: the file cannot be opened or mapped, or is not a regular file.
        ValueError: the file is not a ``.npy`` file, is truncated, or holds objects.
    """
    with open_regular(os.path.realpath(path)) as file:  # np.memmap keeps the path as ``filename``
        shape, is_fortran, dtype = _npy_header(file, os.fstat(file.fileno()).st_size)
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


def _npy_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's header. Return its shape, whether it is in Fortran order, and its dtype. ``size`` is the file's size in bytes."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # a bad header may raise any exception of Python's parser or NumPy
        raise ValueError(f"the file has no valid .npy header: {' '.join(str(error).split())[:60]}") from None
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"the array holds {dtype}, not numbers")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"the array has the shape {shape}: sizes must be integers of at least 0")
    if math.prod(shape) * dtype.itemsize > size - file.tell():
        raise ValueError(f"the file is shorter than an array of shape {shape} and dtype {dtype}")
    return shape, is_fortran, dtype


def read_npz(path: str | Path, names: Iterable[str] | None = None) -> dict[str, Array]:
    """Read arrays of a ``.npz`` file: all, or those in ``names``.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
        ValueError: the file is not a ``.npz`` file, is damaged, holds objects, lacks a name, or does not fit in memory.
    """
    with _archive(path) as archive:
        members = _members(archive)
        if missing := [name for name in names or () if name not in members]:
            raise ValueError(f"the file has no member {', '.join(missing)}")
        return {name: _read_member(archive, members[name]) for name in names or members}


def npz_shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a ``.npz`` file's arrays by name. Only headers are read.

    Raises:
        OSError: the file cannot be opened.
        ValueError: the file is not a ``.npz`` file, is damaged, or holds objects.
    """
    with _archive(path) as archive:
        shapes = {}
        for name, member in _members(archive).items():
            with archive.open(member) as stream:
                shapes[name], _, _ = _npy_header(stream, member.file_size)
        return shapes


def npz_members(path: str | Path) -> dict[str, tuple[int, int]]:
    """Return (CRC-32, size in bytes) of each array of a ``.npz`` file by name.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
        ValueError: the file is not a ``.npz`` file.
    """
    with _archive(path) as archive:
        return {name: (member.CRC, member.file_size) for name, member in _members(archive).items()}


@contextmanager
def _archive(path: str | Path) -> Iterator[zipfile.ZipFile]:
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        MemoryError,
    ) as error:  # zipfile raises RuntimeError for members that are encrypted or compressed by an unknown method
        raise ValueError(" ".join(str(error).split()) or "it is cut short, or too large for the memory") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {member.filename.removesuffix(".npy"): member for member in archive.infolist() if member.filename.endswith(".npy")}


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as stream:
        shape, is_fortran, dtype = _npy_header(stream, member.file_size)
        array: Array = np.empty(math.prod(shape), dtype)
        content, place = array.view(np.uint8), 0
        while place < len(content):
            piece = stream.read(min(_PIECE, len(content) - place))
            if not piece:
                raise ValueError(f"member {member.filename} of the file is truncated")
            content[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
            place += len(piece)
        stream.read(1)  # reaches the end of the member, where zipfile compares the checksum
    return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
