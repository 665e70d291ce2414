"""Where converted data sets are kept, and how one gets there once."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from hoptrain.engine.dataset import BaseDataset
from hoptrain.engine.errors import InputError
from hoptrain.engine.store import HEADER, FolderWriter, cache_root, create_folder

D = TypeVar("D", bound=BaseDataset)


def converted(key: str) -> Path:
    """Return the folder of a converted data set; it may not exist yet.

    Raises:
        InputError: this user may not look into the cache.
    """
    return _readable(cache_root() / "datasets") / key


def downloads(root: Path | None) -> Path:
    """Return where raw files are downloaded to: ``root``, else a folder of the cache.

    Raises:
        InputError: this user may not look into the cache.
    """
    return root if root is not None else _readable(cache_root() / "downloads")


def _readable(folder: Path) -> Path:
    try:
        os.scandir(folder).close()
    except PermissionError as error:
        raise unusable(folder, "read", error) from error
    except OSError:  # it does not exist, or whoever needs it says what is wrong with it
        pass
    return folder


def unusable(path: Path, done: str, error: OSError) -> InputError:
    """Return the error that a path in the cache cannot be ``done``, "read" or "written"."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        "make room, or set $HOPTRAIN_CACHE to a folder with some"
        if is_full
        else "set $HOPTRAIN_CACHE, or root, to a folder that you can write"
    )
    return InputError(f"{path} cannot be {done} ({error.strerror or error}): {remedy}")


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder of arrays written by hoptrain.

    Raises:
        InputError: this user may not look into it.
    """
    try:
        return (path / HEADER).is_file()
    except PermissionError as error:
        raise unusable(path, "read", error) from error


def convert_once(key: str, kind: str, write: Callable[[FolderWriter], None]) -> Path:
    """The folder in the cache that is called ``key``; ``write`` makes it first if it is not there.

    ``key`` has to change with the source and with the converter. Two processes may convert at once: each writes a folder of its own and
    the first to end gives it the name.

    Raises:
        InputError: the cache cannot be written, or what ``write`` raises.
    """
    path = converted(key)
    if not is_folder(path):
        try:
            with create_folder(path, kind) as writer:
                write(writer)
        except OSError as error:
            raise unusable(path, "written", error) from error
    return path


def open_cached(kind: type[D], key: str, write: Callable[[FolderWriter], None]) -> D:
    """Open the converted data set called ``key``, made first as by ``convert_once``; ``kind`` is its class.

    Raises:
        InputError: as ``convert_once`` and ``Dataset.open``.
    """
    return kind.open(convert_once(key, kind.kind, write))


def check_room(folder: Path, num_bytes: int) -> None:
    """Refuse to start what cannot end: writing to a mapped file on a full disk kills the process instead of raising an error."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            f"{folder.parent} has {free / 1e9:.1f} GB free, but {num_bytes / 1e9:.1f} GB are needed: make room, set $HOPTRAIN_CACHE "
            "to another disk, or take a smaller scale where there is one"
        )


def fingerprint(files: Iterable[Path]) -> str:
    """Eight hexadecimal digits that change when a file is replaced: from names, sizes and times, not from the contents."""
    stats = ((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files))
    return f"{zlib.crc32(repr(list(stats)).encode()):08x}"
