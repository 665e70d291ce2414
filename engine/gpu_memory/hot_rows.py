"""The choice of hot rows, the most frequently read rows of a table, for a cache in device memory."""

from __future__ import annotations

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.machine import parse_size


def num_cached(size: float | str, num_rows: int, row_bytes: int) -> int:
    """Return the number of rows that fit into a cache.

    Args:
        size: size in bytes with a unit, such as "2GiB" or "500 MB"; or a fraction of the rows in (0, 1].
        num_rows: number of rows V.
        row_bytes: number of bytes per row.

    Raises:
        InputError: the size is invalid or too small for a row.
    """
    share, num_bytes = parse_size(size, "gpu_cache")
    rows = int(share * num_rows) if share else num_bytes // row_bytes
    if not rows:
        raise InputError(
            f"gpu_cache is {size}: it must hold at least one of {num_rows:,} rows of {row_bytes:,} bytes; give more, or leave it out"
        )
    return min(rows, num_rows)


def hottest(counts: Array, number: int) -> Array:
    """Return the ``number`` rows with the largest counts, in ascending order. Among equal counts the first rows are chosen.

    Args:
        counts: (V,) number of accesses to each row.
        number: number of rows to choose, at most V.

    Returns:
        (number,) row numbers, int64.
    """
    rows_of = np.bincount(counts)  # number of rows that were accessed 0, 1, 2, ... times
    above = len(counts) - np.cumsum(rows_of)  # number of rows that were accessed more than 0, 1, 2, ... times
    least = int(np.argmax(above <= number))
    ties = np.flatnonzero(counts == least)[: number - above[least]]
    return np.sort(np.concatenate([np.flatnonzero(counts > least), ties]))


def slots_of(hot: Array, num_rows: int) -> Array:
    """Return the slot of each row, (V,) int32: its index in ``hot``, or -1 without a slot."""
    slots = np.full(num_rows, -1, np.int32)
    slots[hot] = np.arange(len(hot), dtype=np.int32)
    return slots
