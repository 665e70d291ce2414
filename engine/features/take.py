"""Reading rows of feature tables by id without a cache, for evaluation and for batches of many small graphs.

A table that is larger than free memory is read from its file in ascending order, bypassing the page cache. Reading it through the memory map would
evict pages that are needed sooner, such as the pages of the graph.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import QuantizedRows, Rows, codes_of
from hoptrain.engine.machine import available_memory
from hoptrain.engine.queue.shared_memory import mapped_file

if TYPE_CHECKING:
    from hoptrain.engine.storage.file_rows import FileRows


class SharedOutRows(Protocol):
    """A table partitioned over several machines. Each rank calls ``take`` as often as it needs rows, and then ``finish``."""

    def take(self, ids: Array) -> Array:
        """Return the rows (N, ...) of ``ids`` (N,)."""
        ...

    def finish(self) -> None:
        """Serve the rows that other ranks still request, after this rank's last ``take``."""


def take_rows(table: Rows | SharedOutRows, ids: Array) -> Array:
    """Return ``table[ids]`` of a table (V, ...) for ids (N,) in [0, V), as numbers if the table is quantised.

    Raises:
        InputError: the file was truncated, its device fails, or another machine cannot be reached.
    """
    if isinstance(table, QuantizedRows):
        return table.columns.expand(take_rows(table.codes, ids))
    if not isinstance(table, np.ndarray):
        return table.take(ids)
    file = mapped_file(table)
    if file is None or table.nbytes <= available_memory():
        taken: Array = np.take(table, ids, axis=0)
        return taken
    out = np.empty((len(ids), *table.shape[1:]), table.dtype)
    path = str(file.filename)
    # part of the cache key, since another file may have replaced the mapped file
    inode = os.stat(path).st_ino if os.path.exists(path) else 0
    _reader(inode, path, file.offset, table.shape, table.dtype).gather(ids, out)
    return out


def finish_rows(table: Rows | SharedOutRows | None) -> None:
    """Serve the rows that other ranks still request from a table on several machines. For other tables, do nothing."""
    if (rows := codes_of(table)) is not None and not isinstance(rows, np.ndarray):
        rows.finish()


@lru_cache(maxsize=16)
def _reader(inode: int, path: str, offset: int, shape: tuple[int, ...], dtype: Any) -> FileRows:
    """Return a reader, cached so that the file stays open between calls."""
    from hoptrain.engine.storage.file_rows import FileRows

    return FileRows(path, offset, shape, dtype)
