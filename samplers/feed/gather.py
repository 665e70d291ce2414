"""Features and labels of a mini-batch's nodes, read from the store into a buffer of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu import gather as kernels
from hoptrain.samplers.batch.sampled import SampledBatch
from hoptrain.samplers.scratch.workspace import Workspace

_WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)
_BEYOND_CACHES = 16 << 20
"""Bytes of a copy from which on its beginning has left the caches when its end is written, or is about to."""


def named_rows(batch: SampledBatch, stores: Mapping[str, Any], ids_at: Callable[[str, Any], Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a batch takes from stores: the name that the rows have in it, the store, and which rows.

    Args:
        batch: the batch.
        stores: ``Dataset.stores``, or the same on a device.
        ids_at: of a name and the places of edges in the graph's ``indices``, the rows of their features.
    """
    ids_of = batch.row_ids()
    for name, store in stores.items():
        if name == "edge_attr":
            yield from ((key, store, ids_at(key, places)) for key, places in batch.edge_places().items())
        else:
            yield name, store, ids_of[name]


def gather_rows(store: Array, ids: Array, out: Array, workspace: Workspace | None = None) -> None:
    """``out[i] = store[ids[i]]``: rows are moved as they are stored, whatever their dtype.

    Args:
        store: (V, ...) C-contiguous.
        ids: (N,) row numbers in [0, V), not checked.
        out: (N, ...) C-contiguous, of the store's dtype and row shape.
        workspace: its threads share the rows.
    """
    threads = workspace.threads if workspace else 1
    rows, copies = _as_words(store), _as_words(out)
    # Narrow words are better off in the caches: a store past them moves one word, where an ordinary one moves a vector.
    past_caches = copies.nbytes >= _BEYOND_CACHES and copies.itemsize == 8
    bounds = [len(ids) * thread // threads for thread in range(threads + 1)]
    parts = [partial(kernels.gather_rows, rows, ids, bounds[i], bounds[i + 1], copies, past_caches) for i in range(threads)]
    if workspace:
        workspace.run(parts)
    else:
        parts[0]()


def _as_words(array: Array) -> Array:
    """The same memory as rows of the widest unsigned integers that fill a row."""
    row = prod(array.shape[1:])
    word = next(word for word in _WORDS if row * array.itemsize % np.dtype(word).itemsize == 0)
    return array.reshape(len(array), row).view(word)
