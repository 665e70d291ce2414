"""Gathering of rows: functions that copy the features and labels of a mini-batch from their stores into buffers of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import QuantizedRows, QuantParams, Rows, codes_of
from hoptrain.kernels.cpu import gather as kernels
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.samplers.batch.serialise import PackedBatch
from hoptrain.samplers.buffers.workspace import Workspace

_WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)
_BEYOND_CACHES = 16 << 20
"""Minimum bytes of a copy that bypasses the CPU caches: the beginning of a larger copy would be evicted before it is used."""
_LONG = 16
"""Minimum number of 64-bit words in a row (two cache lines) for copies that bypass the caches."""
WORTH_SHARING = 1 << 18
"""Minimum bytes of a copy that is divided among threads, since starting threads takes tens of microseconds."""
_PIECES = 8
"""Number of pieces per thread into which copies are divided. With small pieces, threads finish at about the same time."""


def named_rows(
    batch: SampledBatch | PackedBatch, stores: Mapping[str, Any], ids_at: Callable[[str, str, Any], Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, store and row ids of each array of rows that a batch takes from stores.

    Args:
        batch: the batch.
        stores: feature and label tables by name, as in ``Dataset.stores``; on the host or on a device.
        ids_at: returns the row ids of edge features, from the store's name, the rows' name, and the CSC positions of the edges.
    """
    ids_of = batch.row_ids()
    for name, store in stores.items():
        if name.startswith("edge_attr"):
            yield from ((key, store, ids_at(name, key, places)) for key, places in batch.edge_places(name).items())
        elif name in ids_of:  # there are no labels if seeds have several types
            yield name, store, ids_of[name]


def split_columns(stores: Mapping[str, Rows]) -> tuple[dict[str, Any], dict[str, QuantParams]]:
    """Return the arrays of stores that are gathered (codes if quantised), and the scales of the quantised ones, each by name."""
    columns = {name: rows.columns for name, rows in stores.items() if isinstance(rows, QuantizedRows)}
    return {name: codes_of(rows) for name, rows in stores.items()}, columns


def with_columns(rows: Mapping[str, Any], columns: Mapping[str, QuantParams]) -> dict[str, Any]:
    """Return a batch's rows by name, with codes of quantised stores as ``QuantizedRows``.

    Args:
        rows: arrays by their names in the batch, as ``named_rows`` has them.
        columns: scales of the quantised stores, by name.
    """
    of = {
        name: columns.get(name.rpartition(".")[0] if name.startswith("edge_attr") else name) for name in rows
    }  # edge features have one array per hop
    return {name: own if (by := of[name]) is None else QuantizedRows(own, by) for name, own in rows.items()}


def gather_rows(store: Array, ids: Array, out: Array, workspace: Workspace | None = None) -> None:
    """Compute ``out[i] = store[ids[i]]``; rows of any dtype are copied byte by byte.

    Args:
        store: (V, ...); kernels copy from a C-contiguous one, NumPy from any other.
        ids: (N,) row numbers in [0, V), not checked.
        out: (N, ...) C-contiguous, of the store's dtype and row shape.
        workspace: scratch memory whose threads divide the work; None to use only the calling thread.
    """
    gather_all([(store, ids, out)], workspace)


def gather_rows_of_two(store: Array, other: Array, ids: Array, out: Array, workspace: Workspace) -> None:
    """Compute ``out[i] = store[ids[i]]``, or ``other[-1 - ids[i]]`` for negative ids. Both stores are C-contiguous, with rows of one shape and dtype."""
    rows, others, copies = _as_words(store), _as_words(other), _as_words(out)
    number = _PIECES * workspace.threads if workspace.threads > 1 and out.nbytes >= WORTH_SHARING else 1
    pieces = iter(list(pairwise(len(ids) * i // number for i in range(number + 1))))

    def copy_some() -> None:
        for first, last in pieces:
            kernels.gather_rows_of_two(rows, others, ids, first, last, copies)

    workspace.start([copy_some] * (workspace.threads - 1 if number > 1 else 0), copy_some)()


def gather_all(wanted: Sequence[tuple[Array, Array, Array]], workspace: Workspace | None = None) -> None:
    """Run ``gather_rows`` for several triples (store, ids, out)."""
    start_gathering(wanted, workspace)()


def start_gathering(wanted: Sequence[tuple[Array, Array, Array]], workspace: Workspace | None = None) -> Callable[[], None]:
    """Start ``gather_all`` in the other threads of the workspace. Return a function that takes part in the work and waits until all rows are copied.

    ``ids`` must not change until then.
    """
    num_bytes = sum(out.nbytes for _, _, out in wanted)
    threads = workspace.threads if workspace and num_bytes >= WORTH_SHARING else 1
    pieces = iter(list(_pieces(wanted, num_bytes, num_bytes // (_PIECES * threads) if threads > 1 else num_bytes)))

    def copy_some() -> None:
        for kernel, *arguments in pieces:
            kernel(*arguments)

    return workspace.start([copy_some] * (threads - 1), copy_some) if workspace else copy_some


def _pieces(wanted: Sequence[tuple[Array, Array, Array]], num_bytes: int, of_piece: int) -> Iterator[tuple[Any, ...]]:
    """Yield calls (a kernel and its arguments) that copy about ``of_piece`` bytes each. All calls together copy ``num_bytes`` bytes."""
    for store, ids, out in wanted:
        if not store.flags.c_contiguous:  # not contiguous: for instance a column of a user's table
            yield np.take, store, ids, 0, out
            continue
        rows, copies = _as_words(store), _as_words(out)
        # Only whole cache lines of 64-bit words can bypass the caches; short rows share lines with their neighbours.
        past_caches = num_bytes >= _BEYOND_CACHES and copies.itemsize == 8 and copies.shape[1] >= _LONG
        kernel = kernels.gather_rows_past_caches if past_caches else kernels.gather_rows
        number = max(1, round(out.nbytes / max(1, of_piece)))
        for first, last in pairwise(len(ids) * i // number for i in range(number + 1)):
            yield kernel, rows, ids, first, last, copies


def _as_words(array: Array) -> Array:
    """View an array as rows of the widest unsigned integers that divide a row."""
    row = prod(array.shape[1:])
    word = next(word for word in _WORDS if row * array.itemsize % np.dtype(word).itemsize == 0)
    return array.reshape(len(array), row).view(word)
