"""Features and labels of a mini-batch's nodes, read from the store into a buffer of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import Columns, QuantizedRows, Rows, codes_of
from hoptrain.kernels.cpu import gather as kernels
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.samplers.buffers.workspace import Workspace

_WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)
_BEYOND_CACHES = 16 << 20
"""Bytes of copies from which on their beginning has left the caches when their end is written, or is about to."""
_LONG = 16
"""Words of 64 bits in a row, two cache lines."""
WORTH_SHARING = 1 << 18
"""Bytes from which on threads share copies: handing a part out costs some tens of microseconds."""
_PIECES = 8
"""Of what is shared, for each thread: the last ones to finish keep nobody waiting for long."""


def named_rows(batch: SampledBatch, stores: Mapping[str, Any], ids_at: Callable[[str, str, Any], Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a batch takes from stores: the name that the rows have in it, the store, and which rows.

    Args:
        batch: the batch.
        stores: ``Dataset.stores``, or the same on a device.
        ids_at: of a store's name, the rows' name and the places of edges in the graph's ``indices``, the rows of their features.
    """
    ids_of = batch.row_ids()
    for name, store in stores.items():
        if name.startswith("edge_attr"):
            yield from ((key, store, ids_at(name, key, places)) for key, places in batch.edge_places(name).items())
        elif name in ids_of:  # seeds of several types have no labels
            yield name, store, ids_of[name]


def split_columns(stores: Mapping[str, Rows]) -> tuple[dict[str, Any], dict[str, Columns]]:
    """What is gathered, cached and sent of stores, arrays or their codes, and what the codes of those that are quantised stand for."""
    columns = {name: rows.columns for name, rows in stores.items() if isinstance(rows, QuantizedRows)}
    return {name: codes_of(rows) for name, rows in stores.items()}, columns


def with_columns(rows: Mapping[str, Any], columns: Mapping[str, Columns]) -> dict[str, Any]:
    """A batch's rows by name, where those of quantised stores become what their codes stand for.

    Args:
        rows: arrays by their names in the batch, as ``named_rows`` has them.
        columns: of the stores that are quantised.
    """
    of = {name: columns.get(name.rpartition(".")[0] if name.startswith("edge_attr") else name) for name in rows}  # of edges by hop
    return {name: own if (by := of[name]) is None else QuantizedRows(own, by) for name, own in rows.items()}


def gather_rows(store: Array, ids: Array, out: Array, workspace: Workspace | None = None) -> None:
    """``out[i] = store[ids[i]]``: rows are moved as they are stored, whatever their dtype.

    Args:
        store: (V, ...); kernels copy from one that is C-contiguous, NumPy from another.
        ids: (N,) row numbers in [0, V), not checked.
        out: (N, ...) C-contiguous, of the store's dtype and row shape.
        workspace: its threads share the rows.
    """
    gather_all([(store, ids, out)], workspace)


def gather_rows_of_two(store: Array, other: Array, ids: Array, out: Array, workspace: Workspace) -> None:
    """As ``gather_rows``, but of negative ids: ``out[i] = other[-1 - ids[i]]``. Both stores are C-contiguous, with rows of one shape and dtype."""
    rows, others, copies = _as_words(store), _as_words(other), _as_words(out)
    number = _PIECES * workspace.threads if workspace.threads > 1 and out.nbytes >= WORTH_SHARING else 1
    pieces = iter(list(pairwise(len(ids) * i // number for i in range(number + 1))))

    def copy_some() -> None:
        for first, last in pieces:
            kernels.gather_rows_of_two(rows, others, ids, first, last, copies)

    workspace.start([copy_some] * (workspace.threads - 1 if number > 1 else 0), copy_some)()


def gather_all(wanted: Sequence[tuple[Array, Array, Array]], workspace: Workspace | None = None) -> None:
    """``gather_rows`` of several (store, ids, out)."""
    start_gathering(wanted, workspace)()


def start_gathering(wanted: Sequence[tuple[Array, Array, Array]], workspace: Workspace | None = None) -> Callable[[], None]:
    """Let the other threads of the workspace begin with ``gather_all``. What is returned shares the rest with them, and ends when all is done.

    Until then ``ids`` stay as they are.
    """
    num_bytes = sum(out.nbytes for _, _, out in wanted)
    threads = workspace.threads if workspace and num_bytes >= WORTH_SHARING else 1
    pieces = iter(list(_pieces(wanted, num_bytes, num_bytes // (_PIECES * threads) if threads > 1 else num_bytes)))

    def copy_some() -> None:
        for kernel, *arguments in pieces:
            kernel(*arguments)

    return workspace.start([copy_some] * (threads - 1), copy_some) if workspace else copy_some


def _pieces(wanted: Sequence[tuple[Array, Array, Array]], num_bytes: int, of_piece: int) -> Iterator[tuple[Any, ...]]:
    """Kernels with arguments, for ``of_piece`` bytes each of ``num_bytes``, about."""
    for store, ids, out in wanted:
        if not store.flags.c_contiguous:  # rows that do not lie in one piece: a column of a user's table
            yield np.take, store, ids, 0, out
            continue
        rows, copies = _as_words(store), _as_words(out)
        # Narrow words and short rows are better off in the caches: what goes past them is a line of wide ones, and rows meet in few.
        past_caches = num_bytes >= _BEYOND_CACHES and copies.itemsize == 8 and copies.shape[1] >= _LONG
        kernel = kernels.gather_rows_past_caches if past_caches else kernels.gather_rows
        number = max(1, round(out.nbytes / max(1, of_piece)))
        for first, last in pairwise(len(ids) * i // number for i in range(number + 1)):
            yield kernel, rows, ids, first, last, copies


def _as_words(array: Array) -> Array:
    """The same memory as rows of the widest unsigned integers that fill a row."""
    row = prod(array.shape[1:])
    word = next(word for word in _WORDS if row * array.itemsize % np.dtype(word).itemsize == 0)
    return array.reshape(len(array), row).view(word)
