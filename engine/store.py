"""Arrays in a folder: ``.npy`` files and a small JSON header, written in whole or not at all, opened memory-mapped.

The header (``header.json``) states format, version, kind and counts, and for every array its file, dtype, shape and CRC-32.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array
from hoptrain.engine.errors import InputError, error_context, explain_hint
from hoptrain.engine.files.untrusted import map_npy, open_regular, read_json

FORMAT = "hoptrain-arrays"
VERSION = 1
HEADER = "header.json"
VERIFY_LIMIT = 256 << 20
"""Folders up to this many bytes are checked whole on every opening; larger ones by file sizes, and whole by ``hoptrain data info``."""
LEFTOVER_SECONDS = 24 * 60 * 60
"""The temporary folder of a writer that was killed is removed when nothing in it has changed for so long."""

PIECE = 64 << 20
"""Bytes that are read at once to compare a checksum."""
_OPENED: dict[Path, str] = {}
"""Folders that this process has opened, and their files when it did last."""
_MOST_MARKS = 1000
_CHECKS = 1
"""Raised where checks are added: folders that were checked by fewer are checked once more."""


def cache_root() -> Path:
    """``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``."""
    return Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain")


class FolderWriter:
    """Fills a new folder; see ``create_folder``."""

    def __init__(self, folder: Path) -> None:
        """Write into ``folder``, which exists."""
        self.folder = folder
        self.meta: dict[str, Any] = {}

    def create(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
        """A new array on disk, memory-mapped for writing: for arrays larger than memory. Its room is taken here, since later a full disk is a SIGBUS."""
        path = self.folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    def add(self, name: str, array: Array) -> None:
        """Write an array; one that ``create`` made is there already."""
        path = self.folder / f"{name}.npy"
        if isinstance(array, np.memmap) and str(array.filename) == str(path.resolve()):
            array.flush()
            return
        try:
            np.save(path, array, allow_pickle=False)
        except OSError as error:
            if error.errno is None:  # NumPy's, of a write that was cut short
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise


@contextmanager
def create_folder(path: Path, kind: str) -> Iterator[FolderWriter]:
    """Write a folder under a temporary name; rename it to ``path`` when the body has ended well, delete it otherwise.

    Two processes that write the same ``path`` do not disturb each other: the first to end wins, the other's work is dropped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(path)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        writer = FolderWriter(temporary)
        yield writer
        _write_header(temporary, kind, writer.meta)
        try:
            temporary.rename(path)
        except OSError as error:
            if not (path / HEADER).exists():
                raise InputError(
                    f"{path} cannot be written ({error.strerror}): give a folder that does not exist yet, or remove it"
                ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def create_new_folder(path: Path, kind: str) -> Iterator[FolderWriter]:
    """``create_folder`` for a place of the user's, where nothing may be lost.

    Raises:
        InputError: ``path`` exists, or cannot be written.
    """
    if path.exists():
        raise InputError(f"{path} exists: {kind} folders are not written over; remove it or name another folder")
    try:
        with create_folder(path, kind) as writer:
            yield writer
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}): make room, or name a folder of your own") from error


def _clear_leftovers(path: Path) -> None:
    """Remove the temporary folders of earlier writers of ``path`` that were killed."""
    for folder in list(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}")):
        with suppress(OSError):  # another process clears it as well, or it is not ours
            changed = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            if time.time() - changed > LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _write_header(folder: Path, kind: str, meta: Mapping[str, Any]) -> None:
    arrays = {}
    for file in sorted(folder.glob("*.npy")):
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        arrays[file.stem] = {"file": file.name, "dtype": array.dtype.str, "shape": list(array.shape), "crc32": crc32(file)}
    header = {"format": FORMAT, "version": VERSION, "kind": kind, "meta": dict(meta), "arrays": arrays}
    (folder / HEADER).write_text(json.dumps(header, indent=1))


def open_folder(path: Path, kind: str, *, verify: bool | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Open a folder written by ``create_folder``: its arrays, memory-mapped read-only, and its ``meta``.

    Loaders see before each batch that files are as long as they were (``hoptrain.engine.queue.shared_memory.check_whole``).

    Args:
        path: the folder.
        kind: what it has to hold, as its writer said.
        verify: compare checksums; by default if the folder is no larger than ``VERIFY_LIMIT`` and ``checking`` remembers none that is as it is.

    Raises:
        InputError: no such folder, another format, version or kind, a file that is missing, truncated or altered.
    """
    header = read_header(path, kind)
    _OPENED[path.resolve()] = _state_of(path)
    if verify is None:
        files = [path / entry["file"] for entry in header["arrays"].values()]
        verify = sum(file.stat().st_size for file in files if file.exists()) <= VERIFY_LIMIT and not _is_checked(path)
    return {name: _open_array(path, entry, verify) for name, entry in header["arrays"].items()}, header["meta"]


@contextmanager
def checking(path: Path, verify: bool | None = None) -> Iterator[bool]:
    """Yield whether the contents of a folder have to be validated, and remember that they were if the body ends well.

    That is a pass over the arrays, so it is made once for a folder: the cache keeps the sizes and times of its files. ``verify`` True makes it again,
    False leaves it out.

    Raises:
        InputError: the body's, with the folder named.
    """
    state = _state_of(path)
    is_new = not _is_checked(path) if verify is None else verify
    with error_context(str(path)) if is_new else nullcontext():
        yield is_new
    if is_new:
        with suppress(OSError, RuntimeError):  # without a place to remember it is checked again
            mark = _mark_of(path)
            mark.parent.mkdir(parents=True, exist_ok=True)
            own = mark.with_name(f"{mark.name}.{os.getpid()}")
            own.write_text(state)
            own.replace(mark)
            marks = sorted(mark.parent.iterdir(), key=lambda other: other.stat().st_mtime_ns)
            for other in marks[:-_MOST_MARKS]:
                other.unlink()


def check_unchanged(path: Path) -> None:
    """Refuse to read on from a folder whose files were replaced or rewritten since this process opened it: their maps may hold anything.

    Raises:
        InputError: the files are other ones.
    """
    opened = _OPENED.get(path.resolve())
    if opened is None or opened == (now := _state_of(path)):
        return
    sizes = [{name: size for name, size, *_ in json.loads(state)[1:]} for state in (opened, now)]
    if not any(sizes[1].get(name, 0) < size for name, size in sizes[0].items()):  # a file that was cut off is named where it is read
        raise InputError(
            f"{path} has changed since it was opened: a run reads its files to the end; start the run again, on a folder that stays"
        )


def _is_checked(path: Path) -> bool:
    try:
        return _mark_of(path).read_text() == _state_of(path)
    except (OSError, RuntimeError, ValueError):
        return False


def _mark_of(path: Path) -> Path:
    return cache_root() / "checked" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def _state_of(path: Path) -> str:
    """Sizes, times and numbers of a folder's files."""
    files = sorted((entry.name, entry.stat()) for entry in os.scandir(path) if entry.is_file())
    return json.dumps([_CHECKS, *([name, own.st_size, own.st_mtime_ns, own.st_ino] for name, own in files)])


@contextmanager
def complete_header(path: Path) -> Iterator[None]:
    """Turn a KeyError, from an array or entry that a folder's header does not have, into the user's error."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"{path} has no {error.args[0]!r} in its header: it was not written by hoptrain; convert it again") from None


def kind_of(path: Path) -> str | None:
    """What a folder says it holds; None where it says nothing that can be read."""
    try:
        kind = read_json(path / HEADER)["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind if isinstance(kind, str) else None


def read_header(path: Path, kind: str) -> dict[str, Any]:
    """The header of a folder, checked for format, version and kind."""
    if not path.is_dir():
        raise InputError(
            f"{path} is not a folder: name one written by hoptrain ('hoptrain data import' or 'hoptrain data convert' makes it)"
        )
    try:
        header = read_json(path / HEADER)
        found = (header["format"], header["version"], header["kind"])
        entries = {name: (entry["file"], entry["dtype"], entry["shape"], entry["crc32"]) for name, entry in header["arrays"].items()}
        if not isinstance(header["meta"], dict) or not all(isinstance(file, str) for file, *_ in entries.values()):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path} has no readable {HEADER}: it was not written by hoptrain; make one with 'hoptrain data convert'"
        ) from None
    if found != (FORMAT, VERSION, kind):
        raise InputError(
            f"{path} holds {found[2]!r} in format {found[0]} {found[1]}, wanted is {kind!r} in {FORMAT} {VERSION}: convert it again"
        )
    for file, *_ in entries.values():
        if os.path.basename(file) != file:
            raise InputError(
                f"{path / HEADER} names the file {file!r} outside its folder: it was not written by hoptrain; convert it again"
            )
    return header  # type: ignore[no-any-return]


def _open_array(path: Path, entry: Mapping[str, Any], verify: bool) -> Array:
    file = path / entry["file"]
    try:
        array: Array = map_npy(file)
    except (OSError, ValueError):
        raise InputError(
            f"{file} is missing, truncated or no .npy file: remove {path} and convert it again{explain_hint('damaged')}"
        ) from None
    if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
        raise InputError(f"{file} holds {array.dtype}: arrays are of numbers; convert them, and {path} again{explain_hint('damaged')}")
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise InputError(
            f"{file} holds {array.dtype.str} {list(array.shape)}, its header says {entry['dtype']} {entry['shape']}: convert it again{explain_hint('damaged')}"
        )
    if verify and crc32(file) != entry["crc32"]:
        raise InputError(
            f"{file} does not match its checksum: the file was altered or damaged; remove {path} and convert it again{explain_hint('damaged')}"
        )
    return array


def crc32(file: Path) -> int:
    """Checksum of a file, read in pieces."""
    value = 0
    with open_regular(file) as stream:
        while piece := stream.read(PIECE):
            value = zlib.crc32(piece, value)
    return value
