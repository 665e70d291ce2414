"""Single entries of an array in a file."""

from __future__ import annotations

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.file_rows import FileRows


def read_entries(file: FileRows, places: Array) -> Array:
    """The entries (M,) of a file at ``places`` (M,), which may repeat: in the order of the file, many at once."""
    order = np.argsort(places)
    found = np.empty(len(places), file.dtype)
    file.read(places[order].astype(np.int64, copy=False), order, found.view(np.uint8).reshape(len(places), file.row_bytes))
    return found
