"""Features as codes of 8 or 4 bits, with a scale and a zero for each column: a quarter or an eighth of the bytes of float32.

Codes are what lies in the file, in a cache, in the queue and in the copy to a device; a batch is expanded where a model takes it
(``SampledBatch.to``). Labels, times and the graph's weights, which samplers draw by, are never quantised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array, as_float32, to_bfloat16
from hoptrain.engine.errors import InputError, check_choice
from hoptrain.kernels.cpu.storage import quantized as kernels

_BITS = {"int8": 8, "int4": 4, "float16": 16, "bfloat16": 16}
FORMATS = tuple(_BITS)
"""What features can be narrowed to."""
_CODED = ("int8", "int4")
_WHOLE = 1 << 24
"""Integers up to it are exact in float32."""
PIECE = 8 << 20
"""Numbers that are narrowed at once, about: the table may be larger than memory."""

Create: TypeAlias = Callable[[str, Any, tuple[int, ...]], Array]
"""``create(name, dtype, shape)`` of a new array: in memory, or a file's (``FolderWriter.create``)."""


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """What the codes of a table's F columns stand for: ``zero + scale * code``, float32.

    Attributes:
        format: "int8", whose codes are 0 to 255, or "int4", 0 to 15.
        scale: (F,) float32 of 16 significant bits, 0 where all numbers of a column are the same.
        zero: (F,) float32, the number of code 0.
    """

    format: str
    scale: Array
    zero: Array

    @property
    def width(self) -> int:
        """Bytes of a row: F, or half as many."""
        return len(self.scale) if self.format == "int8" else (len(self.scale) + 1) // 2

    def expand(self, codes: Array, out: Array | None = None) -> Array:
        """Codes (N, width) uint8 as numbers (N, F) float32, in ``out`` where it is given."""
        out = np.empty((len(codes), len(self.scale)), np.float32) if out is None else out
        kernel = kernels.expand if self.format == "int8" else kernels.expand_packed
        kernel(np.ascontiguousarray(codes), np.asarray(self.scale), np.asarray(self.zero), out)
        return out


@dataclass(frozen=True, eq=False, slots=True)
class QuantizedRows:
    """A table (N, F) of float32 that is kept as codes. It is in the place of an array: ``np.take(rows, ids, axis=0)`` and ``np.asarray(rows)`` give numbers.

    Attributes:
        codes: (N, columns.width) uint8.
        columns: what they stand for.
    """

    codes: Array
    columns: Columns

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F)."""
        return len(self.codes), len(self.columns.scale)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def size(self) -> int:
        """N * F."""
        return len(self.codes) * len(self.columns.scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"QuantizedRows({self.columns.format}, shape={self.shape})"

    def __getitem__(self, rows: Any) -> Any:
        """A slice of rows is a view, codes as before; a row, or rows by ids or a mask, are numbers."""
        if isinstance(rows, slice):
            return replace(self, codes=self.codes[rows])
        if isinstance(rows, tuple):
            raise InputError(f"an index {rows} into quantised features: they have an index of rows alone; take np.asarray(rows) first")
        return self._numbers(self.codes[rows])

    def take(self, indices: Any, axis: int | None = None, out: Array | None = None, mode: str = "raise") -> Array:
        """The numbers of rows, as ``np.take``, which calls it.

        Raises:
            InputError: along another axis than 0.
        """
        if axis != 0:
            raise InputError(f"np.take of quantised features with axis {axis}: rows are taken, by axis=0; take np.asarray(rows) for others")
        return self._numbers(np.take(self.codes, indices, axis=0, mode=mode), out)  # type: ignore[call-overload]

    def _numbers(self, codes: Array, out: Array | None = None) -> Array:
        numbers = self.columns.expand(codes.reshape(-1, self.columns.width), out)
        return numbers.reshape(*codes.shape[:-1], len(self.columns.scale))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All numbers, which is what NumPy asks for; ``copy`` cannot be False."""
        if copy is False:
            raise ValueError("quantised features are numbers in new memory only: leave copy=False out")
        return self.columns.expand(self.codes).astype(dtype or np.float32, copy=False)


Rows: TypeAlias = Array | QuantizedRows
"""A table of features: an array (N, F), or codes in its place."""


def codes_of(rows: Any) -> Any:
    """What is gathered, cached and sent of a table: itself, or its codes."""
    return rows.codes if isinstance(rows, QuantizedRows) else rows


def format_of(rows: Rows) -> str:
    """How numbers are kept, for people."""
    return rows.columns.format if isinstance(rows, QuantizedRows) else "bfloat16" if rows.dtype == BFLOAT16 else str(rows.dtype)


def in_memory(rows: Rows | None) -> Rows | None:
    """A copy of a table in memory of this process."""
    return replace(rows, codes=np.array(rows.codes)) if isinstance(rows, QuantizedRows) else None if rows is None else np.array(rows)


def files_of(name: str, rows: Rows) -> dict[str, Array]:
    """The arrays of a table by the names of their files: those of codes tell the format, so that nobody takes them for numbers."""
    if not isinstance(rows, QuantizedRows):
        return {name: rows}
    columns = rows.columns
    return {f"{name}_{columns.format}": rows.codes, f"{name}_scale": columns.scale, f"{name}_zero": columns.zero}


def rows_in(arrays: dict[str, Array], name: str) -> Any:
    """The table of that name among ``files_of``, ``Rows``; None where there is none."""
    for form in _CODED:
        if (codes := arrays.get(f"{name}_{form}")) is not None:
            return QuantizedRows(codes, Columns(form, arrays[f"{name}_scale"], arrays[f"{name}_zero"]))
    return arrays.get(name)


def narrowed(name: str, tables: dict[str, Rows], features: str, create: Create) -> dict[str, Rows]:
    """The tables of a data set in a narrower format; those that it would not make smaller stay as they are.

    Args:
        name: of the data set, for messages.
        tables: features by the name of their file.
        features: one of ``FORMATS``.
        create: makes the arrays.

    Raises:
        InputError: another format; no table that it makes smaller, or one that is quantised already; as ``quantize``.
    """
    check_choice("features", features, FORMATS)
    for what, rows in tables.items():
        if isinstance(rows, QuantizedRows):
            raise InputError(
                f"{name}: {what} is {format_of(rows)} already: it would be rounded twice; convert the data set that it was made from"
            )
    smaller = {
        what: quantize(rows, features, what=f"{name}: {what}", create=create, name=what)
        for what, rows in tables.items()
        if not isinstance(rows, QuantizedRows) and _BITS[features] < 8 * rows.dtype.itemsize
    }
    if not smaller:
        kept = ", ".join(f"{what} is {format_of(rows)}" for what, rows in tables.items()) or "there are none"
        raise InputError(f"{name}: features as {features}, and {kept}: that makes none smaller; leave it out, or take a narrower format")
    return tables | smaller


class _Range(NamedTuple):
    """Of the F columns of a table: least and largest numbers, float32, and whether all are integers."""

    low: Array
    high: Array
    is_whole: Array


def quantize(x: Array, features: str, *, what: str = "x", create: Create | None = None, name: str = "x") -> Rows:
    """A table in another format.

    Codes go from a column's least number to its largest in even steps, so a number is off by half a step at most (and by float32's own rounding). 0 stays 0 in
    a column that has it within its range, and a column of integers that the codes can count stays exact. With float16 and
    bfloat16 numbers are rounded to the nearest, halves to even.

    Args:
        x: (N, F) finite numbers.
        features: one of ``FORMATS``.
        what: what it is called in messages.
        create: makes the arrays, by default in memory.
        name: their name for ``create``.

    Returns:
        ``QuantizedRows``, or (N, F) of float16 or ``BFLOAT16``.

    Raises:
        InputError: another format; a number that is not finite as float32, or beyond what the format reaches to.
    """
    check_choice("features", features, FORMATS)
    create = create or (lambda _, dtype, shape: np.empty(shape, dtype))
    pieces = _pieces(x)
    if features not in _CODED:
        dtype = BFLOAT16 if features == "bfloat16" else np.dtype(np.float16)
        table = create(name, dtype, x.shape)
        for rows in pieces:
            _check(what, rows, as_float32(x[rows]), float(np.finfo(np.float16).max) if features == "float16" else np.inf)
            table[rows] = to_bfloat16(as_float32(x[rows])) if features == "bfloat16" else as_float32(x[rows]).astype(np.float16)
        return table
    top = 255 if features == "int8" else 15
    columns = columns_of(_range_of(x, what), top, features)
    codes = create(f"{name}_{features}", np.uint8, (len(x), columns.width))
    for rows in pieces:
        numbers = as_float32(x[rows])
        single = np.empty(numbers.shape, np.uint8)
        kernels.encode(numbers, columns.scale, columns.zero, top, single)
        if features == "int4":
            kernels.pack(single, codes[rows])
        else:
            codes[rows] = single
    return QuantizedRows(codes, columns)


def columns_of(found: _Range, top: int, form: str) -> Columns:
    """Scale and zero of columns whose codes are 0 to ``top``."""
    low, high = found.low.astype(np.float64), found.high.astype(np.float64)
    is_counted = found.is_whole & (high - low <= top) & (np.maximum(abs(low), abs(high)) <= _WHOLE)
    scale = np.where(high == low, 0.0, np.where(is_counted, 1.0, _rounded_up((high - low) / top)))
    has_zero = (low < 0) & (high >= 0)  # then a code has to stand for 0
    zero = np.where(has_zero, 0.0 - scale * np.rint(-low / np.where(has_zero, scale, 1.0)), low)
    return Columns(form, scale.astype(np.float32), zero.astype(np.float32))


def _rounded_up(scale: Array) -> Array:
    """Of 16 significant bits, and at least as large; not so small that a product with a code is rounded."""
    fraction, exponent = np.frexp(np.maximum(scale, 2.0**-125))
    rounded: Array = np.ldexp(np.ceil(fraction * 2**16) / 2**16, exponent)
    return rounded


def _range_of(x: Array, what: str) -> _Range:
    num_columns = x.shape[1]
    low, high = np.full(num_columns, np.inf, np.float32), np.full(num_columns, -np.inf, np.float32)
    found = _Range(low, high, np.ones(num_columns, bool))
    for rows in _pieces(x):
        numbers = as_float32(x[rows])
        if not kernels.column_ranges(numbers, *found):
            _check(what, rows, numbers, kernels.MOST)
    return found if len(x) else _Range(np.zeros_like(low), np.zeros_like(low), found.is_whole)


def _pieces(x: Array) -> list[slice]:
    step = max(1, PIECE // max(1, x.shape[1]))
    return [slice(begin, begin + step) for begin in range(0, len(x), step)]


def _check(what: str, rows: slice, numbers: Array, most: float) -> None:
    """Refuse numbers that are not finite, or larger than ``most``."""
    bad = ~np.isfinite(numbers) | (abs(numbers) > most)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        is_large = np.isfinite(numbers[row, column])
        rule = (
            f"this format reaches to {most:g}; scale the column, or take bfloat16"
            if is_large
            else "features are finite in float32; replace it"
        )
        raise InputError(f"{what}[{rows.start + row}, {column}] is {numbers[row, column]:g}: {rule}")
