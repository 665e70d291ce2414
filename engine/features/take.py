"""Rows of a table by their numbers, where no cache knows them before: evaluation, and what is put together from many small graphs.

A table that is larger than the memory that is free is read from its file, ascending and past the page cache: by the map each of its rows would push
others out that are needed sooner, those of the graph among them.
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
    """A table whose rows lie on several machines. All ranks take rows together, as often as each needs, and then each calls ``finish``."""

    def take(self, ids: Array) -> Array:
        """Return the rows (N, ...) of ``ids`` (N,)."""
        ...

    def finish(self) -> None:
        """Answer the ranks that still take rows; this one takes no more for now."""


def take_rows(table: Rows | SharedOutRows, ids: Array) -> Array:
    """Return ``table[ids]`` of a table (V, ...), for ids (N,) in [0, V); of ``QuantizedRows`` the numbers.

    Raises:
        InputError: the file has no such row any more, or its device fails; a table on several machines cannot reach one of them.
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
    inode = os.stat(path).st_ino if os.path.exists(path) else 0  # another file may have come in its place
    _reader(inode, path, file.offset, table.shape, table.dtype).gather(ids, out)
    return out


def finish_rows(table: Rows | SharedOutRows | None) -> None:
    """Answer the ranks that still take rows of a table on several machines; of other tables nothing is done."""
    if (rows := codes_of(table)) is not None and not isinstance(rows, np.ndarray):
        rows.finish()


@lru_cache(maxsize=16)
def _reader(inode: int, path: str, offset: int, shape: tuple[int, ...], dtype: Any) -> FileRows:
    """Kept open from one call to the next."""
    from hoptrain.engine.storage.file_rows import FileRows

    return FileRows(path, offset, shape, dtype)
