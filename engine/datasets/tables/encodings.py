"""Conversion of table columns to features. A first pass over a column chooses its encoding, a second pass converts the cells.

Numbers may have thousands separators (``1,457.01``). Dates in ISO 8601 (``2021-03-04``, ``2021-03-04T12:30Z``) become days since 1970-01-01 in UTC, or
seconds if they are times of edges. A column of texts is a category: its texts become numbers from 0, in alphabetical order. A cell is missing if it is
empty, ``?`` or a spelling of NA, NaN or null.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import Kind, as_number
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError, check_choice, join_limited

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
    category: str = "it is not among the column's categories; name one of them, or leave the cell empty if training had empty cells"
    empty: str = "each cell needs a value; fill missing cells with --missing mean (or zero), or leave the column out (--drop)"
    weight: str = "weights must be finite and 0 or more; give such a weight"


RULES = Rules()


@dataclass(frozen=True)
class Encoding:
    """The encoding of a column, which converts its cells to numbers.

    Attributes:
        kind: kind of the cells; ``none`` if they cannot be converted to numbers.
        categories: texts of a category column in the order of their numbers. If the last text is "", it stands for missing cells.
        fill: number that replaces missing cells; None if missing cells are errors.
        rule: the rule that cells of another kind break, for messages.
        width: number of features; more than 1 for lists in Parquet files.
        missing: number of missing cells.
    """

    kind: Literal["number", "date", "category", "none"] = "number"
    categories: Sequence[str] = ()
    fill: float | None = None
    rule: str = field(default=RULES.number, repr=False)
    width: int = 1
    missing: int = 0

    @property
    def cells(self) -> Kind:
        """Kind (of ``cells.py``) with which the column is read."""
        return "text" if self.kind == "category" else "cell"

    def numbers(self, values: Array) -> tuple[Array, Array]:
        """Convert cells (N,) or (N, D), numbers or texts, to float64 numbers (NaN for wrong cells). Return the numbers, and which cells (N,) are missing."""
        if values.dtype.kind in "iuf" and self.kind == "number":
            numbers = np.where(np.isinf(values), np.nan, values) if values.dtype.kind == "f" else values.astype(np.float64)
            missing = _has_nan(values)
        else:
            import pandas  # type: ignore[import-untyped]

            codes, texts = pandas.factorize(values if values.dtype == object else values.astype(str).astype(object))
            kinds, found = _classify(texts)
            if self.kind == "category":
                found = pandas.Index(list(self.categories), dtype=object).get_indexer(texts).astype(np.float64)
                found[found < 0] = np.nan
            else:
                found[kinds != {"number": _NUMBER, "date": _DATED}.get(self.kind, -1)] = np.nan
            numbers, missing = found[codes], kinds[codes] == _EMPTY
        if self.fill is not None:
            numbers[np.isnan(values) if numbers.ndim == 2 else missing] = self.fill
        return numbers, missing

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
        entries = {"categories": list(self.categories), "fill": self.fill, "width": self.width, "missing": self.missing}
        return {"kind": self.kind} | {name: value for name, value in entries.items() if value != getattr(_PLAIN, name) and value != []}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Encoding:
        """Return the encoding that ``as_json`` wrote."""
        kind, fill = entry["kind"], entry.get("fill")
        rule = {"number": RULES.number, "date": RULES.date, "category": RULES.category}[kind]
        categories = tuple(map(str, entry.get("categories", ())))
        return cls(kind, categories, None if fill is None else float(fill), rule, int(entry.get("width", 1)), int(entry.get("missing", 0)))


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


def read_numbers(
    encodings: Mapping[str, Encoding], columns: Mapping[str, Array], table: Table, places: Array, bad: BadRows
) -> tuple[dict[str, Array], Array]:
    """Convert the columns of a piece of a table, and report wrong cells to ``bad``. Return the numbers by column, and a mask (N,) of the good rows."""
    good, made = np.ones(len(places), bool), {}
    for name, encoding in encodings.items():
        made[name], missing = encoding.numbers(columns[name])
        wrong = _has_nan(made[name])
        good &= ~wrong
        for rows, rule in ((wrong & missing, RULES.empty), (wrong & ~missing, encoding.rule)):
            bad.add(table.path, places[rows], f"{name} is", columns[name][rows], rule)
    return made, good


def _has_nan(numbers: Array) -> Array:
    """Return (N,) bool, True for each row of ``numbers`` (N,) or (N, D) that has a NaN."""
    found = np.isnan(numbers)
    return found if found.ndim == 1 else np.any(found, axis=1)


def as_features(numbers: Mapping[str, Array]) -> Array:
    """Concatenate columns of numbers, each (N,) or (N, D), to features (N, F) float32."""
    return np.concatenate([each if each.ndim == 2 else each[:, None] for each in numbers.values()], axis=1, dtype=np.float32)


@dataclass(frozen=True)
class Reading:
    """Options for reading the cells of feature columns.

    Attributes:
        missing: treatment of missing cells, "error", "mean" or "zero".
        categories: names of columns that are categories even if their cells look like numbers, compared without case.
        like: ``meta`` of another imported data set, whose columns, encodings and classes are used instead of new ones.
    """

    missing: Missing = "error"
    categories: Collection[str] = ()
    like: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, get_args(Missing))


AS_THEY_ARE = Reading()


class Column:
    """Statistics of a column from a pass over it: the number and the sum of its cells by kind, and the different texts."""

    def __init__(self, is_category: bool = False) -> None:
        """Create empty statistics. ``is_category``: treat all cells as texts, even if they look like numbers."""
        self.is_category, self.width = is_category, 1
        self.count, self.total = np.zeros(4, np.int64), np.zeros(4)
        self.texts: set[str] = set()

    def add(self, values: Array) -> None:
        """Count the cells (N,) or (N, D) of a piece: numbers, or texts."""
        if values.dtype.kind in "iuf":
            finite = values[np.isfinite(values)]
            self.width = values.shape[1] if values.ndim == 2 else 1
            self.count[_NUMBER] += len(finite)
            self.count[_EMPTY] += values.size - len(finite)
            self.total[_NUMBER] += finite.sum(dtype=np.float64)
            return
        import pandas

        codes, texts = pandas.factorize(values)
        kinds, numbers = _classify(texts)
        kinds[(kinds != _EMPTY) & self.is_category] = _TEXT
        each = np.bincount(codes, minlength=len(texts))
        self.count += np.bincount(kinds, each, minlength=4).astype(np.int64)
        self.total += np.bincount(kinds, np.nan_to_num(numbers) * each, minlength=4)
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
            return Encoding("category", (*texts, *[""] * is_filled), float(len(texts)) if is_filled else None, RULES.category)
        kind = _DATED if dated > number else _NUMBER
        mean = float(self.total[kind] / max(1, self.count[kind])) if missing == "mean" else 0.0
        rule = RULES.date if kind == _DATED else RULES.number
        return Encoding("date" if kind == _DATED else "number", fill=mean if is_filled else None, rule=rule, width=self.width)


def scan(table: Table, names: Iterable[str], reading: Reading, what: str) -> dict[str, Encoding]:
    """Read columns of a table once, and choose their encodings. Return the encodings by column name, in the order of the features.

    Args:
        table: table to read.
        names: names of the columns to read.
        reading: options for reading the cells.
        what: ``x`` for node features, ``edge_attr`` for edge features: the key in ``Reading.like``.

    Raises:
        InputError: the table cannot be read, or it has other columns than ``Reading.like``.
    """
    named = {name.lower() for name in reading.categories}
    columns = {name: Column(name.lower() in named) for name in names}
    known = None if reading.like is None else encodings_in(reading.like, what)
    if known is not None and (differing := sorted(known.keys() ^ columns.keys())):
        where = "the data set that it must be like" if differing[0] in columns else table.path
        raise InputError(
            f"{table.path} has the columns {join_limited(columns)}: {differing[0]} is missing in {where}; import the same columns"
        )
    kinds: dict[str, Kind] = {name: "text" if column.is_category else "cell" for name, column in columns.items()}
    for piece in table.pieces(kinds, BadRows(skip=1.0)) if columns else ():
        for name, column in columns.items():
            column.add(piece.columns[name])
    if known is not None:
        return {
            name: _filled(replace(own, missing=int(columns[name].count[_EMPTY])), columns[name], reading) for name, own in known.items()
        }
    return {name: column.encoding(reading.missing) for name, column in columns.items()}


def _filled(known: Encoding, column: Column, reading: Reading) -> Encoding:
    """Return a known encoding of numbers or dates; if it has no value for missing cells, take that of this table's column."""
    if known.kind not in ("number", "date") or known.fill is not None:
        return known
    own = column.encoding(reading.missing)
    return replace(known, fill=own.fill) if own.kind == known.kind else known


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
