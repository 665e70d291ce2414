"""Where converted data sets are kept, and how one gets there once."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from hoptrain.engine.dataset import KIND, Dataset, dataset_meta
from hoptrain.engine.store import HEADER, FolderWriter, create_folder


def cache_root() -> Path:
    """``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``."""
    return Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain")


def converted(key: str) -> Path:
    """The folder of a converted data set; it may not exist yet."""
    return cache_root() / "datasets" / key


def downloads(root: Path | None) -> Path:
    """Where raw files are downloaded to: ``root``, else a folder of the cache."""
    return root if root is not None else cache_root() / "downloads"


def is_folder(path: Path) -> bool:
    """Whether the path is a folder of arrays written by hoptrain."""
    return (path / HEADER).is_file()


def open_cached(key: str, write: Callable[[FolderWriter], None]) -> Dataset:
    """Open the converted data set called ``key``; ``write`` makes it first if it is not there.

    ``key`` has to change with the source and with the converter. Two processes may convert at once: each writes a folder of its own and
    the first to end gives it the name.
    """
    path = converted(key)
    if not is_folder(path):
        with create_folder(path, KIND) as writer:
            write(writer)
    return Dataset.open(path)


def write_dataset(writer: FolderWriter, data: Dataset) -> None:
    """Write a data set that is in memory."""
    for name, array in data.arrays().items():
        writer.add(name, array)
    writer.meta.update(dataset_meta(data))


def fingerprint(files: Iterable[Path]) -> str:
    """Eight hexadecimal digits that change when a file is replaced: from names, sizes and times, not from the contents."""
    stats = ((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files))
    return f"{zlib.crc32(repr(list(stats)).encode()):08x}"
