"""Reader of tables in pieces of a few MB that checks every cell. ``.parquet`` files are read by pyarrow, others as text, possibly compressed (``.gz``).

A text file has one row per line. Cells are separated by commas, tabs, semicolons, bars or spaces, whichever occurs in the first line. Lines that begin
with # or % are comments. pandas parses one piece at a time. If it fails, or if a value is out of range, the piece is parsed line by line, and each bad row
is reported.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import DTYPES, EXACT, RULES, WHOLE, Kind, as_number, is_good, parsed
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import open_regular

BYTES = 1 << 24
"""Number of bytes of a text file that are read at once."""
_LONGEST = 16 << 20
"""Maximum number of bytes of a line, because a small compressed file may expand to a line of many GB."""
_COMMENTS = (b"#", b"%")
_MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_HEADS = {
    *("src", "dst", "source", "target", "destination", "from", "to", "id", "node", "node_id", "nodeid", "vertex"),
    *("label", "class", "y", "split", "train_mask", "val_mask", "test_mask"),
    *("weight", "edge_weight", "time", "timestamp", "date", "datetime", "edge_time"),
}
"""Column names that identify the first line of a text file as a header."""
Progress = Callable[[Path, float, int], None]
"""Type of a callback that receives the file, the fraction of the file that was read so far, and the number of rows that were read."""


@dataclass(frozen=True)
class Piece:
    """The valid rows of a piece of a table: ``columns`` by name, each (N,) (for Parquet also (N, D)), and ``places`` (N,), line or row numbers."""

    columns: dict[str, Array]
    places: Array


class Table:
    """A table file whose columns can be renamed or left out, and whose rows are read in pieces.

    Attributes:
        path: path of the file.
        names: names of the columns; "0", "1" and so on without a header.
        unit: how rows are counted in messages: ``line`` for text files, ``row`` for Parquet.
        has_header: True if the first line has the column names.
        doubted: cells of the first line by column, if ``has_header`` was detected and may be wrong, since the cells are texts; else empty.
        num_rows: number of rows read so far, valid or not.
    """

    num_rows = 0

    def __init__(self, path: Path, *, delimiter: str | None = None, header: bool | None = None, assumed: bool | None = None) -> None:
        """Open a table and detect its delimiter and header from the first lines.

        Args:
            path: path of the table file.
            delimiter: character that separates cells, " " for any white space; None to detect it.
            header: whether the file has a header; None to detect it.
            assumed: whether the file probably has a header, instead of the detection; it may be wrong.

        Raises:
            InputError: the file cannot be read, is empty or has repeated column names.
        """
        self.path = path
        self.doubted: dict[str, str] = {}
        self._first_row: dict[str, Any] = {}
        if path.suffix == ".parquet":
            self.unit, self.has_header = "row", True
            _opened(lambda: open_regular(path).close(), path)
            self._file = _opened(lambda: _parquet().ParquetFile(path), path)
            self.names = list(self._file.schema_arrow.names)
        else:
            self.unit = "line"
            first, second = self._first_lines()
            self.delimiter = delimiter or next((mark for mark in ",\t;|" if mark in first), " ")
            cells, below = self._cells(first), self._cells(second)
            assumed = _is_header(cells, below) if assumed is None else assumed
            self.has_header = assumed if header is None else header
            self.names = cells if self.has_header else [str(place) for place in range(len(cells))]
            self._first_row = dict(zip(self.names, below if self.has_header else cells, strict=False))
            if header is None and (self.has_header or all(map(_is_text, cells))):
                self.doubted = dict(zip(self.names, cells, strict=True))
        self._all = self._in_file = list(self.names)
        self._check_names()

    def _check_names(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise InputError(
                f"{self.path} has two columns of one name: names must be unique, but are {', '.join(self.names)}; correct the header"
            )

    def rename(self, names: Sequence[str]) -> None:
        """Rename all columns, in their order."""
        self._first_row = dict(zip(names, self._first_row.values(), strict=False))
        self.doubted = dict(zip(names, self.doubted.values(), strict=False))
        self._all = self.names = list(names)

    def name_in_file(self, name: str) -> str:
        """Return the name that a column had before ``rename``."""
        return str(self._in_file[self._all.index(name)])

    def leave_out(self, names: Sequence[str]) -> None:
        """Remove the columns ``names`` from the table. Their cells are still parsed, as text."""
        self.names = [name for name in self.names if name not in names]

    def begins_with_numbers(self, names: Sequence[str]) -> bool:
        """Return whether these columns contain integers in the first row."""
        if self.unit == "row":
            types = self._types()
            return all(types[self._all.index(name)].startswith(("int", "uint")) for name in names)
        return all(WHOLE.fullmatch(self._first_row.get(name, "0").strip()) for name in names)

    def pieces(self, kinds: Mapping[str, Kind], bad: BadRows, progress: Progress | None = None) -> Iterator[Piece]:
        """Yield the valid rows of the given columns in pieces.

        Raises:
            InputError: the file cannot be read, or ``bad`` raises for a row.
        """
        rows = self.num_rows = 0
        for piece, share in self._frame_pieces(kinds, bad) if self.unit == "row" else self._text_pieces(kinds, bad):
            rows += len(piece.places)
            if progress:
                progress(self.path, share, rows)
            yield piece
        bad.end(self.path, self.unit, self.num_rows)

    def _stream(self) -> tuple[Any, Any]:
        """Return the file, whose position measures progress, and a stream of its decompressed bytes."""
        raw = _opened(lambda: open_regular(self.path), self.path)
        return raw, gzip.GzipFile(fileobj=raw) if self.path.suffix == ".gz" else raw

    def _first_lines(self) -> tuple[str, str]:
        raw, stream = self._stream()
        with raw:
            lines: list[str] = []
            while len(lines) < 2 and (line := self._line(stream)):
                if line.strip() and not line.startswith(_COMMENTS):
                    lines.append(line.decode("utf-8-sig", "replace").rstrip("\r\n"))
        if not lines:
            raise InputError(f"{self.path} is empty: a table needs one row per line; name another file")
        return lines[0], lines[-1] if len(lines) > 1 else ""

    def _line(self, stream: Any) -> bytes:
        """Read the rest of the current line."""
        line: bytes = _opened(lambda: stream.readline(_LONGEST + 1), self.path)
        if len(line) > _LONGEST:
            raise InputError(
                f"{self.path} has a line of more than {_LONGEST >> 20} MiB: a table must have one row per line; write the file again"
            )
        return line

    def _cells(self, line: str) -> list[str]:
        if self.delimiter == " ":
            return line.split()
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self.delimiter, skipinitialspace=True), [])]
        except csv.Error:  # raised if a cell exceeds 131,072 characters
            return [line]

    def _text_pieces(self, kinds: Mapping[str, Kind], bad: BadRows) -> Iterator[tuple[Piece, float]]:
        raw, stream = self._stream()
        with raw:
            size, line, is_header = max(self.path.stat().st_size, 1), 1, self.has_header
            while block := _opened(lambda: stream.read(BYTES), self.path) + self._line(stream):
                block = block.removeprefix(_MARK) if line == 1 else block
                lines = _lines(block) if _has_others(block, is_header) else None
                if lines is None:
                    count = block.count(b"\n") + (not block.endswith(b"\n"))
                    places = np.arange(line, line + count)
                else:
                    count = len(lines)
                    kept = [i for i, one in enumerate(lines) if one.strip() and not one.startswith(_COMMENTS)]
                    if is_header and kept:
                        kept, is_header = kept[1:], False
                    places, block = line + np.array(kept, np.int64), b"\n".join(lines[i] for i in kept)
                line += count
                self.num_rows += len(places)
                yield self._text_piece(block, places, kinds, bad), raw.tell() / size

    def _text_piece(self, block: bytes, places: Array, kinds: Mapping[str, Kind], bad: BadRows) -> Piece:
        """Parse a block with pandas if all its values are valid, else line by line."""
        columns = self.by_pandas(block, kinds)
        if columns is not None and all(
            len(columns[name]) == len(places) and is_good(kind, columns[name]).all() for name, kind in kinds.items()
        ):
            return Piece(columns, places)
        return self._line_by_line(block, places, kinds, bad)

    def by_pandas(self, block: bytes, kinds: Mapping[str, Kind]) -> dict[str, Array] | None:
        """Parse a block with pandas. Return columns by name, or None if the result could differ from parsing line by line."""
        import pandas  # type: ignore[import-untyped]

        if "id" in kinds.values() and _has_leading_zeros(block):
            return None  # pandas would read 007 as 7
        if not block:
            return {name: np.empty(0, np.int64 if DTYPES[kind] is np.int64 else object) for name, kind in kinds.items()}
        options = {"header": None, "names": self._all, "index_col": False, "keep_default_na": False, "na_values": [], "low_memory": False}
        dtypes = {name: DTYPES[kinds[name]] if name in kinds else str for name in self._all if kinds.get(name) != "cell"}
        mark = r"\s+" if self.delimiter == " " else self.delimiter
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # raise for rows with more cells than the header
                frame = pandas.read_csv(io.BytesIO(block), sep=mark, dtype=dtypes, skipinitialspace=True, **options)
        except (ValueError, pandas.errors.ParserWarning, OverflowError):
            return None
        whole = [frame[name].to_numpy() for name, kind in kinds.items() if DTYPES[kind] is np.int64]
        if any((np.abs(values) >= EXACT).any() for values in whole) and re.search(rb"[.eE]", block):
            return None  # pandas would read a column with 7.0 as float64
        last = frame.iloc[:, -1]
        is_whole = b'"' not in block and block.count(self.delimiter.encode()) == len(frame) * (len(self._all) - 1)
        if last.dtype.kind not in "iufb" and (last.isna() | (last == "")).any() and not is_whole:
            return None  # some rows may have fewer cells than the header
        of_truth = [name for name, kind in kinds.items() if kind == "cell" and frame[name].dtype == bool]
        frame = frame.astype(dict.fromkeys(of_truth, str))
        texts = [name for name in kinds if frame[name].dtype.kind not in "iuf"]
        for name in texts if b" " in block else ():
            frame[name] = frame[name].str.strip()
        return {name: frame[name].to_numpy(object if name in texts else None) for name in kinds}

    def _line_by_line(self, block: bytes, places: Array, kinds: Mapping[str, Kind], bad: BadRows) -> Piece:
        values: dict[str, list[Any]] = {name: [] for name in kinds}
        kept = []
        at = {name: self._all.index(name) for name in kinds}
        for line, place in zip(_lines(block) if block else [], places, strict=True):
            row = self._row(line, kinds, at)
            if isinstance(row, _Wrong):
                bad.add(self.path, [place], row.what, [row.value], row.rule)
                continue
            kept.append(place)
            for name, value in zip(kinds, row, strict=True):
                values[name].append(value)
        arrays = {name: np.array(values[name], np.int64 if DTYPES[kind] is np.int64 else object) for name, kind in kinds.items()}
        return Piece(arrays, np.array(kept, np.int64))

    def _row(self, line: bytes, kinds: Mapping[str, Kind], at: Mapping[str, int]) -> list[Any] | _Wrong:
        """Parse a line. Return its values, or a description of what is wrong."""
        try:
            text = line.decode().removesuffix("\r")
        except UnicodeDecodeError:
            return _Wrong("it is", line[:40].decode(errors="replace"), "text must be UTF-8; convert the file")
        if text.count('"') % 2:
            return _Wrong("it is", text, "quotes must be closed in the same line; close the quote")
        cells = self._cells(text)
        if len(cells) != len(self._all):
            rule = f"it must have {len(self._all)}, as the first line; add or drop cells, or give the --delimiter"
            return _Wrong("it has", f"{len(cells)} cells", rule)
        row = []
        for name, kind in kinds.items():
            value = parsed(kind, cells[at[name]])
            if value is None:
                return _Wrong(f"{name} is", cells[at[name]], RULES[kind])
            row.append(value)
        return row

    def _frame_pieces(self, kinds: Mapping[str, Kind], bad: BadRows) -> Iterator[tuple[Piece, float]]:
        first = 1
        for frame, total in self._frames([self._all.index(name) for name in kinds]):
            frame.columns = list(kinds)
            columns = {name: _of_frame(self.path, name, kind, frame[name].to_numpy()) for name, kind in kinds.items()}
            good = np.ones(len(frame), bool)
            for name in (name for name, kind in kinds.items() if kind == "key"):
                wrong = np.flatnonzero(columns[name] == "")
                good[wrong] = False
                bad.add(self.path, first + wrong, f"{name} is", columns[name][wrong], RULES["key"])
            places = first + np.flatnonzero(good)
            first += len(frame)
            self.num_rows += len(frame)
            yield Piece({name: values if good.all() else values[good] for name, values in columns.items()}, places), (first - 1) / total

    def _types(self) -> list[str]:
        """Return the names of the types of all columns, such as ``int64``."""
        return [str(field.type) for field in self._file.schema_arrow]

    def _frames(self, places: Sequence[int]) -> Iterator[tuple[Any, int]]:
        """Yield pairs: a data frame of some rows with the columns at ``places``, and the number of rows of the whole table."""
        names = [self._file.schema_arrow.names[place] for place in places]
        for batch in self._file.iter_batches(batch_size=1 << 18, columns=names):
            yield batch.to_pandas(integer_object_nulls=True)[names], max(self._file.metadata.num_rows, 1)


class FrameTable(Table):
    """A table in memory, from a ``pandas.DataFrame`` whose index is ignored."""

    def __init__(self, frame: Any, name: str) -> None:
        """Wrap a data frame; ``name`` is its name in messages.

        Raises:
            InputError: ``frame`` is not a data frame, or has repeated column names.
        """
        import pandas

        if not isinstance(frame, pandas.DataFrame):
            raise InputError(f"{name} is a {type(frame).__name__}: it must be a pandas.DataFrame; convert it")
        self.path, self.unit, self.has_header, self._frame = Path(name), "row", True, frame
        self._first_row, self.doubted = {}, {}
        self.names = [str(column) for column in frame.columns]
        self._all = self._in_file = list(self.names)
        self._check_names()

    def _types(self) -> list[str]:
        return [str(kind).lower() for kind in self._frame.dtypes]

    def _frames(self, places: Sequence[int]) -> Iterator[tuple[Any, int]]:
        yield self._frame.iloc[:, list(places)].copy(deep=False), max(len(self._frame), 1)


class _Wrong(NamedTuple):
    """A record that explains why a line cannot be read: the problem, the invalid value, and the rule with its remedy."""

    what: str
    value: str
    rule: str


def _lines(block: bytes) -> list[bytes]:
    return block.removesuffix(b"\n").split(b"\n")


def _has_others(block: bytes, is_header: bool) -> bool:
    """Return whether a block has lines that are not rows: a header, comments or empty lines."""
    text = np.frombuffer(b"\n" + block + b"0", np.uint8)
    return is_header or bool(np.isin(text[np.flatnonzero(text == ord("\n")) + 1], list(b"#%\n\r")).any())


def _has_leading_zeros(block: bytes) -> bool:
    """Return whether a block has a number with leading zeros, such as 007; digits within a number or a date do not count."""
    text = np.frombuffer(b"\n" + block, np.uint8)
    is_digit = text - np.uint8(ord("0")) < 10
    before = text[:-2][(text[1:-1] == ord("0")) & is_digit[2:] & ~is_digit[:-2]]
    return not np.isin(before, list(b".eE+-")).all()


def _is_header(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether the first row is a header: it has a known column name, or a text where the second row has a number or a date."""
    known = any(cell.strip().lower() in _HEADS for cell in first)
    return known or any(_is_text(above) and not _is_text(below) for above, below in zip(first, second, strict=False))


def _is_text(cell: str) -> bool:
    """Return whether a cell is neither a number nor a date, as a column name is."""
    return not math.isfinite(as_number(cell)) and _DATE.match(cell) is None


def _opened(read: Callable[[], Any], path: Path) -> Any:
    try:
        return read()
    except InputError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:  # pyarrow raises subclasses of ValueError
        remedy = "give the path of an existing file" if isinstance(error, FileNotFoundError) else "write the file again"
        raise InputError(f"{path} cannot be read ({one_line(error)}): {remedy}") from None


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("pyarrow is not installed: Parquet tables need it; pip install hoptrain[parquet], or give .csv") from None
    return parquet


def _of_frame(path: Path, name: str, kind: Kind, values: Array) -> Array:
    """Convert a data frame's column to the dtype of ``kind``. Missing numbers become NaN, missing texts "", and dates texts in ISO notation."""
    import pandas

    if kind in ("id", "time"):
        if values.dtype.kind not in "iu":
            raise InputError(f"{path}: column {name} is {values.dtype} or has missing values: it must hold integers; convert it")
        if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
            raise InputError(f"{path}: column {name} has {values.max()}: integers must be below 2**63; convert them to texts")
        return values.astype(np.int64)
    if len(values) and isinstance(values[0], np.ndarray):
        widths = {len(value) if isinstance(value, np.ndarray) else -1 for value in values}
        if len(widths) > 1:
            raise InputError(f"{path}: column {name} has lists of {len(widths)} lengths: lists must be of equal length; pad them")
        return np.stack(values.tolist()).astype(np.float64)
    if kind == "cell" and values.dtype.kind in "iuf":
        return values
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values.astype("datetime64[us]")).astype(object)
    else:
        cells = values.tolist()
        texts = np.array([str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in cells], object)
    return np.where(pandas.isna(values), "", texts)
