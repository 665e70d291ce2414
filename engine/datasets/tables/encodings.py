"""Conversion of table columns to features. A first pass over a column chooses its encoding, a second pass converts the cells.

Numbers may have thousands separators (``1,457.01``). Dates in ISO 8601 (``2021-03-04``, ``2021-03-04T12:30Z``) become days since 1970-01-01 in UTC, or
seconds if they are times of edges. A column of texts is a category: its texts become numbers from 0, in alphabetical order. A cell is missing if it is
empty, ``?`` or a spelling of NA, NaN or null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import Kind, as_number
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError, join_limited

Missing: TypeAlias = Literal["error", "mean", "zero"]
"""Treatment of missing cells: report them as errors, or fill in the mean of the column or 0. Missing cells of a category column form their own category."""
MOST_CATEGORIES = 1000
"""Maximum number of distinct texts in a category column. The limit does not apply to columns that the user names as categories."""
_FEW_ROWS = 20
"""Minimum number of rows for this rule: a column whose texts mostly differ is not a category, since the texts are probably names."""
_MISSING = {"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nat"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_OTHER_DATE = re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{1,4}\b.*")
_EMPTY, _NUMBER, _DATED, _TEXT = range(4)
SECONDS_A_DAY = 86400


class Rules(NamedTuple):
    """Texts of the rules that cells may break, with remedies, for error messages."""

    number: str = (
        "other cells are numbers, so all must be finite numbers; fix it, leave the column out (--drop), or name it in --categories"
    )
    date: str = "other cells are dates, so all must be, such as 2021-03-04; fix it, or leave the column out (--drop)"
    notation: str = "dates must be written as 2021-03-04; convert them, or leave the column out (--drop)"
    name: str = "a column of mostly different texts has names, not categories; leave it out (--drop), or name it in --categories"
    empty: str = "each cell needs a value; fill missing cells with --missing mean (or zero), or leave the column out (--drop)"
    weight: str = "weights must be finite and 0 or more; fix it, or drop the row"


RULES = Rules()
_PIECE = 1 << 20
"""Number of features in a piece of the rows whose missing cells are filled."""


@dataclass(frozen=True)
class Encoding:
    """The encoding of a column, which converts its cells to numbers.

    Attributes:
        kind: kind of the cells; ``none`` if they cannot be converted to numbers.
        categories: texts of a category column in the order of their numbers. If the last text is "", it stands for missing cells.
        fill: number that replaces missing cells, NaN for the mean of the column; None if missing cells are errors.
        rule: the rule that cells of another kind break, for messages.
        hole: the rule that missing cells break, for messages.
        width: number of features; more than 1 for lists in Parquet files.
        missing: number of missing cells.
        mean: mean of the column's numbers over all rows that are not left out; None before ``fill_missing``.
        takes_unknown: True to treat texts that are not among ``categories`` as missing cells.
    """

    kind: Literal["number", "date", "category", "none"] = "number"
    categories: Sequence[str] = ()
    fill: float | None = None
    rule: str = field(default=RULES.number, repr=False)
    hole: str = field(default=RULES.empty, repr=False)
    width: int = 1
    missing: int = 0
    mean: float | None = None
    takes_unknown: bool = False

    @property
    def cells(self) -> Kind:
        """Kind (of ``cells.py``) with which the column is read."""
        return "text" if self.kind == "category" else "cell"

    def numbers(self, values: Array) -> tuple[Array, Array]:
        """Convert cells (N,) or (N, D), numbers or texts, to float64 numbers. Return the numbers, and which cells are missing, in the same shape.

        The numbers are NaN for missing cells and for wrong ones.
        """
        if values.dtype.kind in "iuf" and self.kind == "number":
            numbers = values.astype(np.float64)
            empty = np.isnan(numbers)
            numbers[np.isinf(numbers)] = np.nan
            return numbers, empty
        import pandas  # type: ignore[import-untyped]

        codes, texts = pandas.factorize(values if values.dtype == object else values.astype(str).astype(object))
        kinds, found = _classify(texts)
        empty = kinds == _EMPTY
        if self.kind == "category":
            found = pandas.Index(list(self.categories), dtype=object).get_indexer(texts).astype(np.float64)
            found[empty | (found < 0)] = np.nan
            empty |= self.takes_unknown & np.isnan(found)
        else:
            found[kinds != {"number": _NUMBER, "date": _DATED}.get(self.kind, -1)] = np.nan
        return found[codes], empty[codes]

    def told(self) -> str:
        """Return a description of the conversion for the user; "" if all cells are numbers."""
        known = [text for text in self.categories if text]
        how = {"date": "dates as days since 1970-01-01", "category": f"{len(known):,} categories ({join_limited(known, 4)})"}.get(
            self.kind, ""
        )
        filled = f"{self.missing:,} missing cells became {self.fill:g}" if self.missing and self.fill is not None else ""
        return "; ".join(part for part in (how, filled) if part)

    def as_json(self) -> dict[str, Any]:
        """Return the encoding as JSON values, for a data set's ``meta``."""
        names = ("categories", "fill", "width", "missing", "mean")
        entries = {name: list(self.categories) if name == "categories" else getattr(self, name) for name in names}
        return {"kind": self.kind} | {name: value for name, value in entries.items() if value != getattr(_PLAIN, name) and value != []}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Encoding:
        """Return the encoding that ``as_json`` wrote."""
        fill, mean = (None if entry.get(name) is None else float(entry[name]) for name in ("fill", "mean"))
        categories = tuple(map(str, entry.get("categories", ())))
        width, missing = (int(entry.get(name, default)) for name, default in (("width", 1), ("missing", 0)))
        if (kind := entry["kind"]) not in ("number", "date", "category"):
            raise ValueError(f"{kind!r} is no kind of a column")
        return cls(kind, categories, fill, width=width, missing=missing, mean=mean)


_PLAIN = Encoding()


def encodings_in(meta: Mapping[str, Any], what: str) -> dict[str, Encoding]:
    """Return the encodings of columns in a data set's ``meta``, by column; empty if ``data import`` has not written them.

    Args:
        meta: ``meta`` of the data set. Another program may have written or changed it.
        what: ``x`` or ``edge_attr``; for heterogeneous data, a node type or the name of a relation.
    """
    try:
        return {str(name): Encoding.from_json(entry) for name, entry in meta["columns"][what].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def without_encodings(meta: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Return a data set's ``meta`` without the encodings of the columns of ``what`` (see ``encodings_in``), whose features were replaced."""
    columns = meta.get("columns")
    return {**meta, "columns": {key: own for key, own in columns.items() if key != what}} if isinstance(columns, Mapping) else meta


def read_numbers(
    encodings: Mapping[str, Encoding], columns: Mapping[str, Array], table: Table, places: Array, bad: BadRows
) -> tuple[dict[str, Array], Array]:
    """Convert the columns of a piece of a table, and report wrong cells to ``bad``. Return the numbers by column, and a mask (N,) of the good rows.

    Missing cells that are to be filled are NaN, until ``fill_missing`` fills them.

    Raises:
        InputError: the cells of a column are not lists of as many numbers as ``encodings`` says.
    """
    good, made = np.ones(len(places), bool), {}
    for name, encoding in encodings.items():
        values = columns[name]
        width = values.shape[1] if values.ndim == 2 else 1
        if width != encoding.width and len(values):
            raise InputError(
                f"{table.path}: column {name} has {width:,} numbers in each cell, and {encoding.width:,} in the data of --like: both must have "
                "the same number; give cells of that length"
            )
        made[name], empty = encoding.numbers(values)
        hole = _any_in_row(empty) & (encoding.fill is None)
        wrong = _any_in_row(np.isnan(made[name]) & ~empty) & ~hole
        good &= ~(wrong | hole)
        for rows, rule in ((hole, encoding.hole), (wrong, encoding.rule)):
            bad.add(table.path, places[rows], f"{name} is", values[rows], rule)
    return made, good


def _any_in_row(cells: Array) -> Array:
    """Return (N,) bool, True for each row of ``cells`` (N,) or (N, D) in which a cell is True."""
    return cells if cells.ndim == 1 else np.any(cells, axis=1)


def fill_missing(encodings: Mapping[str, Encoding], rows: Array) -> dict[str, Encoding]:
    """Fill the missing cells, NaN, of columns in place, and count them.

    Args:
        encodings: encodings of the columns, in the order of the features.
        rows: numbers (N, F) of all rows that are not left out.

    Returns:
        The encodings with the number of missing cells, and with the mean of the column unless they have one.
    """
    width = rows.shape[1]
    total, known = np.zeros(width), np.zeros(width, np.int64)
    for piece in _pieces(rows):
        is_known = ~np.isnan(piece)
        known += is_known.sum(axis=0)
        total += np.where(is_known, piece, 0).sum(axis=0, dtype=np.float64)
    filled, fills, begin = {}, np.full(width, np.nan, rows.dtype), 0
    for name, own in encodings.items():
        own_columns = slice(begin, begin + own.width)
        number = int(known[own_columns].sum())
        mean = float(total[own_columns].sum() / max(1, number)) if own.mean is None else own.mean
        fill = mean if own.fill is not None and np.isnan(own.fill) else own.fill
        filled[name] = replace(own, fill=fill, mean=mean, missing=len(rows) * own.width - number)
        fills[own_columns] = np.nan if fill is None else fill
        begin += own.width
    for piece in _pieces(rows) if (known < len(rows)).any() else ():
        np.copyto(piece, fills, where=np.isnan(piece))
    return filled


def _pieces(rows: Array) -> Iterator[Array]:
    """Yield rows (N, F) in pieces of a few MB."""
    step = max(1, _PIECE // max(1, rows.shape[1]))
    for begin in range(0, len(rows), step):
        yield rows[begin : begin + step]


def as_features(numbers: Mapping[str, Array]) -> Array:
    """Concatenate columns of numbers, each (N,) or (N, D), to features (N, F) float32."""
    return np.concatenate([each if each.ndim == 2 else each[:, None] for each in numbers.values()], axis=1, dtype=np.float32)


class Column:
    """Statistics of a column from a pass over it: the number of its cells by kind, and the different texts."""

    def __init__(self, is_category: bool = False) -> None:
        """Create empty statistics. ``is_category``: treat all cells as texts, even if they look like numbers."""
        self.is_category, self.width = is_category, 1
        self.count = np.zeros(4, np.int64)
        self.texts: set[str] = set()

    def add(self, values: Array) -> None:
        """Count the cells (N,) or (N, D) of a piece: numbers, or texts."""
        if values.dtype.kind in "iuf":
            finite = int(np.isfinite(values).sum())
            self.width = values.shape[1] if values.ndim == 2 else 1
            self.count[_NUMBER] += finite
            self.count[_EMPTY] += values.size - finite
            return
        import pandas

        codes, texts = pandas.factorize(values)
        kinds = _classify(texts)[0]
        kinds[(kinds != _EMPTY) & self.is_category] = _TEXT
        self.count += np.bincount(kinds, np.bincount(codes, minlength=len(texts)), minlength=4).astype(np.int64)
        if self.is_category or len(self.texts) <= MOST_CATEGORIES:
            self.texts.update(texts[kinds == _TEXT].tolist())

    def encoding(self, missing: Missing) -> Encoding:
        """Choose the encoding of the column."""
        return replace(self._encoding(missing), missing=int(self.count[_EMPTY]))

    def _encoding(self, missing: Missing) -> Encoding:
        number, dated, text = (int(self.count[kind]) for kind in (_NUMBER, _DATED, _TEXT))
        is_filled = missing != "error" and bool(self.count[_EMPTY])
        if text and not number and not dated:
            texts = sorted(self.texts)
            if not self.is_category and any(map(_OTHER_DATE.fullmatch, texts)):
                return Encoding("none", rule=RULES.notation)
            if not self.is_category and (len(texts) > MOST_CATEGORIES or (text > _FEW_ROWS and len(texts) > text / 2)):
                return Encoding("none", rule=RULES.name)
            return Encoding("category", (*texts, *[""] * is_filled), float(len(texts)) if is_filled else None)
        kind = _DATED if dated > number else _NUMBER
        fill = (np.nan if missing == "mean" else 0.0) if is_filled else None
        rule = RULES.date if kind == _DATED else RULES.number
        return Encoding("date" if kind == _DATED else "number", fill=fill, rule=rule, width=self.width)


def is_missing(texts: Array) -> Array:
    """Return which texts (N,) stand for a missing value, (N,) bool."""
    return np.array([text.strip().lower() in _MISSING for text in texts], bool).reshape(len(texts))


def _classify(texts: Array) -> tuple[Array, Array]:
    """Return the kind of each text (N,), and its value: the number, the days since 1970-01-01 of a date, or NaN for other texts."""
    import pandas

    kinds = np.full(len(texts), _TEXT)
    numbers = np.array([as_number(text) for text in texts], np.float64).reshape(len(texts))
    kinds[np.isfinite(numbers)] = _NUMBER
    numbers[kinds != _NUMBER] = np.nan
    kinds[is_missing(texts)] = _EMPTY
    dated = np.array([i for i in np.flatnonzero(kinds == _TEXT) if _DATE.fullmatch(texts[i])], np.int64)
    if len(dated):
        times = pandas.to_datetime(pandas.Series(texts[dated]), format="ISO8601", utc=True, errors="coerce")
        days = (times - pandas.Timestamp(0, tz="UTC")) / pandas.Timedelta(1, "D")
        numbers[dated] = days.to_numpy(np.float64)
        kinds[dated[~np.isnan(numbers[dated])]] = _DATED
    return kinds, numbers
