"""Which rows of a table go into device memory: as many as are asked for, the ones that are read most often."""

from __future__ import annotations

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.machine import parse_size


def num_cached(size: float | str, num_rows: int, row_bytes: int) -> int:
    """How many rows fit a cache.

    Args:
        size: bytes with their unit, such as "2GiB" or "500 MB"; or a share of the rows, above 0 and at most 1.
        num_rows: V.
        row_bytes: bytes of a row.

    Raises:
        InputError: another size, or one without room for a row.
    """
    share, num_bytes = parse_size(size, "gpu_cache")
    rows = int(share * num_rows) if share else num_bytes // row_bytes
    if not rows:
        raise InputError(
            f"gpu_cache is {size}: of {num_rows:,} rows of {row_bytes:,} bytes it has room for none; give more, or leave it out"
        )
    return min(rows, num_rows)


def hottest(counts: Array, number: int) -> Array:
    """The ``number`` rows that were counted most often, in ascending order; of those counted as often as one another the first.

    Args:
        counts: (V,) integers, none negative.
        number: at most V.

    Returns:
        (number,) row numbers, int64.
    """
    rows_of = np.bincount(counts)  # how many rows were counted 0, 1, 2 ... times
    above = len(counts) - np.cumsum(rows_of)  # and how many more often than that
    least = int(np.argmax(above <= number))
    ties = np.flatnonzero(counts == least)[: number - above[least]]
    return np.sort(np.concatenate([np.flatnonzero(counts > least), ties]))


def slots_of(hot: Array, num_rows: int) -> Array:
    """(V,) int32: the slot of each row, its place in ``hot``; -1 for one that has none."""
    slots = np.full(num_rows, -1, np.int32)
    slots[hot] = np.arange(len(hot), dtype=np.int32)
    return slots
