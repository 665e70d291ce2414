"""Folders of arrays: ``.npy`` files and a JSON header, written atomically and opened memory-mapped.

The header (``header.json``) has format, version, kind and metadata, and for every array its file, dtype, shape and CRC-32 checksum.
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
"""Folders up to this many bytes are verified in full on each opening. Larger ones are checked by file size, and in full by ``hoptrain data info``."""
LEFTOVER_SECONDS = 24 * 60 * 60
"""Minimum age in seconds at which the temporary folder of a killed process is removed."""

PIECE = 64 << 20
"""Number of bytes that are read at once to compute a checksum."""
_OPENED: dict[Path, str] = {}
"""Path of a folder that this process has opened -> state of its files when it was last opened."""
_MOST_MARKS = 1000
_CHECKS = 1
"""Version of the validation. Increase it when you add a check, so that known folders are validated again."""


def cache_root() -> Path:
    """Return the cache folder: ``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``."""
    return Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain")


class FolderWriter:
    """A writer that ``create_folder`` yields to add arrays and metadata to a new folder."""

    def __init__(self, folder: Path) -> None:
        """Write into an existing folder."""
        self.folder = folder
        self.meta: dict[str, Any] = {}

    def create(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Create an array on disk, memory-mapped for writing. Its disk space is allocated now, because a full disk would raise SIGBUS later."""
        path = self.folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    def add(self, name: str, array: Array) -> None:
        """Write an array, or flush an array that ``create`` returned."""
        path = self.folder / f"{name}.npy"
        if isinstance(array, np.memmap) and str(array.filename) == str(path.resolve()):
            array.flush()
            return
        try:
            np.save(path, array, allow_pickle=False)
        except OSError as error:
            if error.errno is None:  # NumPy raises an error without errno if the disk is full
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise


@contextmanager
def create_folder(path: Path, kind: str) -> Iterator[FolderWriter]:
    """Write a folder under a temporary name and rename it to ``path`` if the body succeeds; delete it otherwise.

    Several processes may write the same ``path``: the folder of the first to finish is kept, and the folders of the others are deleted.
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
    """Write a folder like ``create_folder``, but never over an existing path.

    Raises:
        InputError: ``path`` exists or cannot be written.
    """
    if path.exists():
        raise InputError(f"{path} exists: {kind} folders are not overwritten; remove it or name another folder")
    try:
        with create_folder(path, kind) as writer:
            yield writer
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): free disk space, or name a folder that you can write to"
        ) from error


def _clear_leftovers(path: Path) -> None:
    """Remove the temporary folders that killed writers of ``path`` left."""
    for folder in list(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}")):
        with suppress(OSError):  # another process has removed the folder, or it belongs to another user
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
    """Open a folder written by ``create_folder``. Return its arrays, memory-mapped read-only, and its ``meta``.

    Loaders check before each batch that no file was truncated (``hoptrain.engine.queue.shared_memory.check_whole``).

    Args:
        path: the folder.
        kind: the kind that the header must have.
        verify: whether to compare checksums; by default if the folder is no larger than ``VERIFY_LIMIT`` and was not validated in its present state.

    Raises:
        InputError: the folder does not exist, has another format, version or kind, or a file is missing, truncated or altered.
    """
    header = read_header(path, kind)
    _OPENED[path.resolve()] = _state_of(path)
    if verify is None:
        files = [path / entry["file"] for entry in header["arrays"].values()]
        verify = sum(file.stat().st_size for file in files if file.exists()) <= VERIFY_LIMIT and not _is_checked(path)
    return {name: _open_array(path, entry, verify) for name, entry in header["arrays"].items()}, header["meta"]


@contextmanager
def checking(path: Path, verify: bool | None = None) -> Iterator[bool]:
    """Yield whether a folder's contents must be validated. If the body succeeds, record that they were.

    Validation takes a pass over the arrays, so it is done once: the cache records the sizes and times of the folder's files. ``verify`` True validates
    again, False skips it.

    Raises:
        InputError: the body raised it; the folder's path is added to the message.
    """
    state = _state_of(path)
    is_new = not _is_checked(path) if verify is None else verify
    with error_context(str(path)) if is_new else nullcontext():
        yield is_new
    if is_new:
        with suppress(OSError, RuntimeError):  # if this cannot be recorded, the folder is validated again next time
            mark = _mark_of(path)
            mark.parent.mkdir(parents=True, exist_ok=True)
            own = mark.with_name(f"{mark.name}.{os.getpid()}")
            own.write_text(state)
            own.replace(mark)
            marks = sorted(mark.parent.iterdir(), key=lambda other: other.stat().st_mtime_ns)
            for other in marks[:-_MOST_MARKS]:
                other.unlink()


def check_unchanged(path: Path) -> None:
    """Raise InputError if a folder's files were replaced or rewritten since this process opened it: the memory maps may then hold anything.

    Raises:
        InputError: files have changed.
    """
    opened = _OPENED.get(path.resolve())
    if opened is None or opened == (now := _state_of(path)):
        return
    sizes = [{name: size for name, size, *_ in json.loads(state)[1:]} for state in (opened, now)]
    if not any(sizes[1].get(name, 0) < size for name, size in sizes[0].items()):  # truncated files are reported where they are read
        raise InputError(f"{path} has changed since it was opened: files must not change during a run; start the run again")


def _is_checked(path: Path) -> bool:
    try:
        return _mark_of(path).read_text() == _state_of(path)
    except (OSError, RuntimeError, ValueError):
        return False


def _mark_of(path: Path) -> Path:
    return cache_root() / "checked" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def _state_of(path: Path) -> str:
    """Return sizes, modification times and inodes of a folder's files as JSON."""
    files = sorted((entry.name, entry.stat()) for entry in os.scandir(path) if entry.is_file())
    return json.dumps([_CHECKS, *([name, own.st_size, own.st_mtime_ns, own.st_ino] for name, own in files)])


@contextmanager
def complete_header(path: Path) -> Iterator[None]:
    """Turn a KeyError for a missing array or header entry into an InputError."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"{path} has no {error.args[0]!r} in its header: the header must be complete; convert the data again") from None


def kind_of(path: Path) -> str | None:
    """Return the kind of a folder's contents, None if it has no readable header."""
    try:
        kind = read_json(path / HEADER)["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind if isinstance(kind, str) else None


def read_header(path: Path, kind: str) -> dict[str, Any]:
    """Return a folder's header. Raise InputError if format, version or kind differ."""
    if not path.is_dir():
        raise InputError(
            f"{path} is not a folder: it must be written by hoptrain; make one with 'hoptrain data import' or 'hoptrain data convert'"
        )
    try:
        header = read_json(path / HEADER)
        found = (header["format"], header["version"], header["kind"])
        entries = {name: (entry["file"], entry["dtype"], entry["shape"], entry["crc32"]) for name, entry in header["arrays"].items()}
        if not isinstance(header["meta"], dict) or not all(isinstance(file, str) for file, *_ in entries.values()):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path} has no readable {HEADER}: a folder written by hoptrain is needed; make one with 'hoptrain data convert'"
        ) from None
    if found != (FORMAT, VERSION, kind):
        raise InputError(
            f"{path} holds {found[2]!r} in format {found[0]} {found[1]}, but {kind!r} in {FORMAT} {VERSION} is needed: convert it again"
        )
    for file, *_ in entries.values():
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise InputError(
                f"{path / HEADER} names the file {file!r} outside its folder: files must be in the folder itself; convert the data again"
            )
    return header  # type: ignore[no-any-return]


def _open_array(path: Path, entry: Mapping[str, Any], verify: bool) -> Array:
    file = path / entry["file"]
    try:
        array: Array = map_npy(file)
    except (OSError, ValueError):
        raise InputError(
            f"{file} is missing, truncated or not a .npy file: remove {path} and convert it again{explain_hint('damaged')}"
        ) from None
    if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
        raise InputError(
            f"{file} holds {array.dtype}: arrays must hold numbers; remove {path} and convert it again{explain_hint('damaged')}"
        )
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise InputError(
            f"{file} holds {array.dtype.str} {list(array.shape)}, its header says {entry['dtype']} {entry['shape']}: convert it again{explain_hint('damaged')}"
        )
    if verify and crc32(file) != entry["crc32"]:
        raise InputError(
            f"{file} does not match its checksum: it was altered or damaged; remove {path} and convert it again{explain_hint('damaged')}"
        )
    return array


def crc32(file: Path) -> int:
    """Return the CRC-32 checksum of a file."""
    value = 0
    with open_regular(file) as stream:
        while piece := stream.read(PIECE):
            value = zlib.crc32(piece, value)
    return value
