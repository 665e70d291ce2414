"""Quantised features: 8-bit or 4-bit codes with a scale and a zero for each column, a quarter or an eighth of float32's size.

Files, caches, the queue and copies to a device hold codes. A batch is expanded to numbers just before a model takes it (``SampledBatch.to``).
Labels, times and edge weights, which samplers use as probabilities, are never quantised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array, as_float32, to_bfloat16
from hoptrain.engine.errors import InputError, check_choice
from hoptrain.kernels.cpu.storage import quantized as kernels

if TYPE_CHECKING:  # modules of data sets must not import storage at run time
    from hoptrain.engine.storage.file_rows import StoredRows

_BITS = {"int8": 8, "int4": 4, "float16": 16, "bfloat16": 16}
FORMATS = tuple(_BITS)
"""Storage formats that features can be converted to."""
_CODED = ("int8", "int4")
_WHOLE = 1 << 24
"""Largest integer up to which float32 represents all integers exactly."""
PIECE = 8 << 20
"""Approximate number of values that are converted at once. The whole table may not fit in memory."""

Create: TypeAlias = Callable[[str, Any, tuple[int, ...]], Array]
"""A function ``create(name, dtype, shape)`` that returns a new array, in memory or in a file (``FolderWriter.create``)."""


@dataclass(frozen=True, eq=False, slots=True)
class QuantParams:
    """The quantisation parameters of F columns. A code stands for the float32 number ``zero + scale * code``.

    Attributes:
        format: "int8" with codes 0 to 255, or "int4" with codes 0 to 15.
        scale: (F,) float32 with 16 significant bits; 0 if all numbers of a column are equal.
        zero: (F,) float32, the number that code 0 represents.
    """

    format: str
    scale: Array
    zero: Array

    @property
    def width(self) -> int:
        """Bytes per row: F for int8, F / 2 rounded up for int4."""
        return len(self.scale) if self.format == "int8" else (len(self.scale) + 1) // 2

    def expand(self, codes: Array, out: Array | None = None) -> Array:
        """Expand codes (N, width) uint8 to numbers (N, F) float32, in ``out`` if given."""
        out = np.empty((len(codes), len(self.scale)), np.float32) if out is None else out
        kernel = kernels.expand if self.format == "int8" else kernels.expand_packed
        kernel(np.ascontiguousarray(codes), np.asarray(self.scale), np.asarray(self.zero), out)
        return out


@dataclass(frozen=True, eq=False, slots=True)
class QuantizedRows:
    """A quantised table (N, F) that acts like a float32 array: ``np.take(rows, ids, axis=0)`` and ``np.asarray(rows)`` give numbers.

    Attributes:
        codes: (N, columns.width) uint8 codes of the rows.
        columns: quantisation parameters of the columns.
    """

    codes: Array
    columns: QuantParams

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the table, (N, F)."""
        return len(self.codes), len(self.columns.scale)

    @property
    def ndim(self) -> int:
        """Number of dimensions, always 2."""
        return 2

    @property
    def size(self) -> int:
        """Number of values, N * F."""
        return len(self.codes) * len(self.columns.scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the expanded numbers, float32."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"QuantizedRows({self.columns.format}, shape={self.shape})"

    def __getitem__(self, rows: Any) -> Any:
        """Return a quantised view for a slice, or the numbers of rows for an index, ids or a mask."""
        if isinstance(rows, slice):
            return replace(self, codes=self.codes[rows])
        if isinstance(rows, tuple):
            raise InputError(f"index {rows} into quantised features: they must be indexed by row alone; use np.asarray(rows) first")
        return self._numbers(self.codes[rows])

    def take(self, indices: Any, axis: int | None = None, out: Array | None = None, mode: str = "raise") -> Array:
        """Return the numbers of rows; ``np.take`` calls this method.

        Raises:
            InputError: ``axis`` is not 0.
        """
        if axis != 0:
            raise InputError(f"np.take of quantised features with axis {axis}: axis must be 0; use np.asarray(rows) for others")
        return self._numbers(np.take(self.codes, indices, axis=0, mode=mode), out)  # type: ignore[call-overload]

    def _numbers(self, codes: Array, out: Array | None = None) -> Array:
        numbers = self.columns.expand(codes.reshape(-1, self.columns.width), out)
        return numbers.reshape(*codes.shape[:-1], len(self.columns.scale))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return all numbers in a new array, for NumPy; ``copy`` cannot be False."""
        if copy is False:
            raise ValueError("quantised features cannot be converted to numbers without a copy: leave copy=False out")
        return self.columns.expand(self.codes).astype(dtype or np.float32, copy=False)


Rows: TypeAlias = "Array | QuantizedRows | StoredRows"
"""Type of a feature table (N, F): an array, ``QuantizedRows``, or ``StoredRows``, whose rows are read from storage when they are needed."""


def codes_of(rows: Any) -> Any:
    """Return the array to gather, cache and send: a table's codes, or the table itself if it is not quantised."""
    return rows.codes if isinstance(rows, QuantizedRows) else rows


def format_of(rows: Rows) -> str:
    """Return the storage format as text, for example 'int8' or 'float16'."""
    return rows.columns.format if isinstance(rows, QuantizedRows) else "bfloat16" if rows.dtype == BFLOAT16 else str(rows.dtype)


def in_memory(rows: Rows | None) -> Rows | None:
    """Return a copy of a table in this process's memory; ``StoredRows`` stay where they are."""
    if isinstance(rows, QuantizedRows):
        return replace(rows, codes=np.array(rows.codes))
    return np.array(rows) if isinstance(rows, np.ndarray) else rows


def files_of(name: str, rows: Rows) -> dict[str, Array]:
    """Return a table's arrays by file name. The names of codes contain their format, so that they are not mistaken for numbers.

    Raises:
        InputError: the table is in a custom store, not in an array.
    """
    if isinstance(rows, np.ndarray):
        return {name: rows}
    if not isinstance(rows, QuantizedRows):
        raise InputError(f"{name} is a {type(rows).__name__}: only arrays are written to files; take the rows into an array")
    columns = rows.columns
    return {f"{name}_{columns.format}": rows.codes, f"{name}_scale": columns.scale, f"{name}_zero": columns.zero}


def rows_in(arrays: dict[str, Array], name: str) -> Any:
    """Return the table ``name`` from arrays by file name, as ``files_of`` returns them; None if the arrays do not contain the table."""
    for form in _CODED:
        if (codes := arrays.get(f"{name}_{form}")) is not None:
            return QuantizedRows(codes, QuantParams(form, arrays[f"{name}_scale"], arrays[f"{name}_zero"]))
    return arrays.get(name)


def narrow_tables(name: str, tables: dict[str, Rows], features: str, create: Create) -> dict[str, Rows]:
    """Convert a data set's tables to a narrower format. Tables that would not become smaller are returned unchanged.

    Args:
        name: name of the data set in messages.
        tables: feature tables by file name.
        features: storage format, one of ``FORMATS``.
        create: function that creates the new arrays.

    Raises:
        InputError: the format is unknown, would make no table smaller or cannot represent the features, or a table is already quantised.
    """
    check_choice("features", features, FORMATS)
    for what, rows in tables.items():
        if isinstance(rows, QuantizedRows):
            raise InputError(
                f"{name}: {what} is already {format_of(rows)}: converting again would round twice; convert the original data set"
            )
    smaller = {
        what: quantize(rows, features, what=f"{name}: {what}", create=create, name=what)
        for what, rows in tables.items()
        if isinstance(rows, np.ndarray) and _BITS[features] < 8 * rows.dtype.itemsize
    }
    if not smaller:
        kept = ", ".join(f"{what} is {format_of(rows)}" for what, rows in tables.items()) or "there are none"
        raise InputError(
            f"{name}: features is {features}, but {kept}: the format must make a table smaller; leave features out, or give a narrower format"
        )
    return tables | smaller


class _Range(NamedTuple):
    """The range of a table's F columns: minimum and maximum (F,) float32, and whether all values are integers (F,) bool."""

    low: Array
    high: Array
    is_whole: Array


def quantize(x: Array, features: str, *, what: str = "x", create: Create | None = None, name: str = "x") -> Rows:
    """Convert a feature table to another storage format.

    Codes divide a column's range from minimum to maximum into equal steps, so the error is at most half a step, in addition to float32's own
    rounding. 0 stays exact in a column whose range includes it, and so do integers if there are enough codes for them. float16 and bfloat16
    round to nearest, ties to even.

    Args:
        x: (N, F) finite numbers.
        features: storage format, one of ``FORMATS``.
        what: name of the table in messages.
        create: function that creates the new arrays; by default in memory.
        name: name of the table for ``create``.

    Returns:
        ``QuantizedRows``, or an array (N, F) of float16 or ``BFLOAT16``.

    Raises:
        InputError: the format is unknown, or a number is not finite as float32 or out of the format's range.
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


def columns_of(found: _Range, top: int, form: str) -> QuantParams:
    """Return scale and zero of columns whose codes are 0 to ``top``."""
    low, high = found.low.astype(np.float64), found.high.astype(np.float64)
    is_counted = found.is_whole & (high - low <= top) & (np.maximum(abs(low), abs(high)) <= _WHOLE)
    scale = np.where(high == low, 0.0, np.where(is_counted, 1.0, _round_up((high - low) / top)))
    has_zero = (low < 0) & (high >= 0)  # columns with values below and above 0 need a code that stands for 0 exactly
    zero = np.where(has_zero, 0.0 - scale * np.rint(-low / np.where(has_zero, scale, 1.0)), low)
    return QuantParams(form, scale.astype(np.float32), zero.astype(np.float32))


def _round_up(scale: Array) -> Array:
    """Round scales up to 16 significant bits, with a lower bound that keeps products with codes exact."""
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
    """Raise InputError if numbers are not finite or exceed ``most`` in magnitude."""
    bad = ~np.isfinite(numbers) | (abs(numbers) > most)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        is_large = np.isfinite(numbers[row, column])
        rule = (
            f"this format's largest number is {most:g}; scale the column, or use bfloat16"
            if is_large
            else "features must be finite in float32; replace it"
        )
        raise InputError(f"{what}[{rows.start + row}, {column}] is {numbers[row, column]:g}: {rule}")
