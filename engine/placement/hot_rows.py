"""Which rows of a table go into device memory: as many as are asked for, the ones that are read most often."""

from __future__ import annotations

import re

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def num_cached(size: float | str, num_rows: int, row_bytes: int) -> int:
    """How many rows fit a cache.

    Args:
        size: bytes with their unit, such as "2GiB" or "500 MB"; or a share of the rows, above 0 and at most 1.
        num_rows: V.
        row_bytes: bytes of a row.

    Raises:
        InputError: another size, or one without room for a row.
    """
    share, num_bytes = parsed_size(size)
    rows = int(share * num_rows) if share else num_bytes // row_bytes
    if not rows:
        raise InputError(
            f"device_cache is {size}: of {num_rows:,} rows of {row_bytes:,} bytes it has room for none; give more, or leave it out"
        )
    return min(rows, num_rows)


def parsed_size(size: float | str, option: str = "device_cache") -> tuple[float, int]:
    """Share and bytes, one of them 0, of the value of an option.

    Raises:
        InputError: it is neither.
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*([A-Za-z]*)\s*", str(size))
    try:
        number, unit = float(found[1]), found[2]  # type: ignore[index]
    except (TypeError, ValueError):
        number, unit = 0.0, ""
    if unit in _UNITS and number > 0:
        return 0.0, int(number * _UNITS[unit])
    if unit or not 0 < number <= 1:
        raise InputError(f"{option} is {size}: it is bytes such as 2GiB, or a share of the rows such as 0.1; correct it")
    return number, 0


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
