"""Folders with right checksums and wrong contents, as somebody else may write them."""

import json

import numpy as np

from hoptrain.engine.store import HEADER, crc32


def put(folder, name, array):
    """Put ``array`` in the place of one of a folder's arrays, or beside them, and state it in the header."""
    np.save(folder / f"{name}.npy", array)
    header = json.loads((folder / HEADER).read_text())
    entry = {"file": f"{name}.npy", "dtype": array.dtype.str, "shape": list(array.shape), "crc32": crc32(folder / f"{name}.npy")}
    header["arrays"][name] = entry
    (folder / HEADER).write_text(json.dumps(header))


def changed(array, place, value):
    """A copy with another value at a place."""
    array = np.array(array)
    array[place] = value
    return array
