"""Data set folders with valid checksums but wrong contents, as another program may write them."""

import json

import numpy as np

from hoptrain.engine.store import HEADER, crc32


def put(folder, name, array):
    """Write ``array`` into a folder, as a new array or instead of an existing one, and update the header."""
    np.save(folder / f"{name}.npy", array)
    header = json.loads((folder / HEADER).read_text())
    entry = {"file": f"{name}.npy", "dtype": array.dtype.str, "shape": list(array.shape), "crc32": crc32(folder / f"{name}.npy")}
    header["arrays"][name] = entry
    (folder / HEADER).write_text(json.dumps(header))


def changed(array, place, value):
    """Return a copy of an array with ``value`` at the index ``place``."""
    array = np.array(array)
    array[place] = value
    return array
