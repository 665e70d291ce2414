"""The cache of converted data sets: its folders, and conversion at first use."""

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
    """Return the cache folder of a converted data set; it may not exist yet.

    Raises:
        InputError: this user may not read the cache.
    """
    return _readable(cache_root() / "datasets") / key


def downloads(root: Path | None) -> Path:
    """Return the folder for downloaded files: ``root``, else a folder of the cache.

    Raises:
        InputError: this user may not read the cache.
    """
    return root if root is not None else _readable(cache_root() / "downloads")


def _readable(folder: Path) -> Path:
    try:
        os.scandir(folder).close()
    except PermissionError as error:
        raise unusable(folder, "read", error) from error
    except OSError:  # the folder does not exist, or later code raises a clearer error
        pass
    return folder


def unusable(path: Path, done: str, error: OSError) -> InputError:
    """Return the InputError for a cache path that cannot be accessed; ``done`` is "read" or "written"."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        "free disk space, or set $HOPTRAIN_CACHE to a folder with free space"
        if is_full
        else "set $HOPTRAIN_CACHE, or root, to a folder that you can write"
    )
    return InputError(f"{path} cannot be {done} ({error.strerror or error}): {remedy}")


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder of arrays written by hoptrain.

    Raises:
        InputError: this user may not read the folder.
    """
    try:
        return (path / HEADER).is_file()
    except PermissionError as error:
        raise unusable(path, "read", error) from error


def convert_once(key: str, kind: str, write: Callable[[FolderWriter], None]) -> Path:
    """Return the cache folder called ``key``; if it does not exist, ``write`` creates it first.

    ``key`` must change with the source and with the converter. Several processes may convert at once: each writes its own folder, and the first
    to finish renames it to ``key``.

    Raises:
        InputError: the cache cannot be written, or ``write`` raises it.
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
    """Open the converted data set called ``key`` as class ``kind``; if it does not exist, ``write`` creates it first.

    Raises:
        InputError: the cache cannot be written or read, or ``write`` raises it.
    """
    return kind.open(convert_once(key, kind.kind, write))


def check_disk_space(folder: Path, num_bytes: int) -> None:
    """Raise InputError if the disk has too little space. Otherwise writing to a memory-mapped file on the full disk would kill the process."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            f"{folder.parent} has {free / 1e9:.1f} GB free, but {num_bytes / 1e9:.1f} GB are needed: free disk space, set $HOPTRAIN_CACHE "
            "to another disk, or give a smaller scale if the data set has one"
        )


def fingerprint(files: Iterable[Path]) -> str:
    """Return eight hexadecimal digits that change when a file is replaced. They are a hash of names, sizes and times, not of contents."""
    stats = ((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files))
    return f"{zlib.crc32(repr(list(stats)).encode()):08x}"
