"""Rows of a table by their numbers, where no cache knows them before: evaluation, and what is put together from many small graphs.

A table that is larger than the memory that is free is read from its file, ascending and past the page cache: by the map each of its rows would push
others out that are needed sooner, those of the graph among them.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import QuantizedRows, Rows, codes_of
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rounds import finish_parted, take_parted
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows


def take_rows(table: Rows | PartedRows, ids: Array) -> Array:
    """``table[ids]`` of a table (V, ...), for ids (N,) in [0, V); of ``QuantizedRows`` the numbers.

    Of features in parts on several machines all ranks take rows together, as often as each needs, and then call ``finish_rows``.

    Raises:
        InputError: the file has no such row any more, or its device fails.
    """
    if isinstance(table, PartedRows):
        return take_parted(table, ids)
    if isinstance(table, QuantizedRows):
        return table.columns.expand(take_rows(table.codes, ids))
    file = mapped_file(table)
    if file is None or table.nbytes <= available_memory():
        taken: Array = np.take(table, ids, axis=0)
        return taken
    rows, place = np.unique(ids, return_inverse=True)
    out = np.empty((len(rows), *table.shape[1:]), table.dtype)
    path = str(file.filename)
    inode = os.stat(path).st_ino if os.path.exists(path) else 0  # another file may have come in its place
    reader = _reader(inode, path, file.offset, table.shape, table.dtype)
    reader.read(rows, np.arange(len(rows)), out.view(np.uint8).reshape(len(rows), reader.row_bytes))
    return out[place]


def finish_rows(table: Rows | PartedRows | None) -> None:
    """This rank takes no more rows for now: it answers those that do."""
    if isinstance(rows := codes_of(table), PartedRows):
        finish_parted(rows)


@lru_cache(maxsize=16)
def _reader(inode: int, path: str, offset: int, shape: tuple[int, ...], dtype: Any) -> FileRows:
    """Kept open from one call to the next."""
    return FileRows(path, offset, shape, dtype)
