"""Tables that pandas reads in pieces equal tables that Python reads line by line."""

import gzip
import os
import random

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.engine.datasets.tables import rows
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import as_number
from hoptrain.engine.datasets.tables.rows import Table

KINDS = {"a": "id", "b": "key", "w": "cell", "t": "time", "f": "cell", "l": "text"}
GOOD = {"a": "7", "b": "ann", "w": "0.5", "t": "-3", "f": "1e-3", "l": ""}
ODD = {
    "a": ["007", "x", "", "7.0", "-2", "1e2", "7.5", "9" * 25, str(2**60 + 1)],
    "b": ["", "7", "é", "NA"],
    "w": ["-1", "nan", "inf", "1_0"],
    "t": ["", "1.5"],
    "f": ["", "nan", "x"],
}
LINES = ["# comment", "", "1,2", "1,2,3,4,5,6,7", '"1,ann,1,1,1,', "\r", "%"]


def text_of(number, seed):
    """Return the text of a table in which every tenth row has an unusual cell, mixed with invalid lines."""
    draw = random.Random(seed)
    lines = [",".join(KINDS)]
    for _ in range(number):
        row = dict(GOOD, a=str(draw.randrange(1000)), f=repr(draw.random()))
        if draw.random() < 0.1:
            name = draw.choice(list(ODD))
            row[name] = draw.choice(ODD[name])
        lines.append(draw.choice(LINES) if draw.random() < 0.1 else ",".join(row.values()))
    return "\n".join(lines) + draw.choice(["", "\n"])


def read(path, **options):
    messages = []
    pieces = list(Table(path, **options).pieces(KINDS, BadRows(messages.append, skip=1.0)))
    columns = {name: [cell for piece in pieces for cell in piece.columns[name].tolist()] for name in KINDS}
    columns |= {name: list(map(as_stored, columns[name])) for name, kind in KINDS.items() if kind == "cell"}
    return columns, np.concatenate([piece.places for piece in pieces]).tolist(), messages


def as_stored(cell):
    """Return a cell's number as data sets store it (float32), or its text.

    Pandas and Python differ in the last place of some doubles.
    """
    number = as_number(str(cell))
    return float(np.float32(number)) if np.isfinite(number) else str(cell)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 200, 1 << 20])
def test_pieces_by_pandas_are_those_line_by_line(seed, size, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "BYTES", size)
    text = text_of(300, seed)
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    fast, zipped = read(tmp_path / "t.csv", header=True), read(tmp_path / "t.csv.gz", header=True)
    monkeypatch.setattr(Table, "by_pandas", lambda *_: None)
    slow = read(tmp_path / "t.csv", header=True)
    assert fast[:2] == slow[:2] == zipped[:2]
    assert fast[2] == slow[2]
    assert len(fast[1]) > 200
    assert len(fast[2]) > 3
    lines = text.split("\n")
    first = [lines[place - 1].split(",")[0] for place in fast[1]]
    assert [int(cell) if cell.lstrip("-").isdigit() else int(float(cell)) for cell in first] == fast[0]["a"]


@pytest.mark.parametrize(
    ("text", "names", "has_header"),
    [
        ("src,dst\nann,bob\n", ["src", "dst"], True),
        ("ann,bob\ncid,dan\n", ["0", "1"], False),
        ("person friend\n1 2\n", ["person", "friend"], True),
        ("1\t2\n", ["0", "1"], False),
        ("# from to\n3|4\n", ["0", "1"], False),
        ("id;0;1\n", ["id", "0", "1"], True),
    ],
)
def test_headers_and_marks_are_looked_at(text, names, has_header, tmp_path):
    (tmp_path / "t").write_text(text)
    table = Table(tmp_path / "t")
    assert (table.names, table.has_header) == (names, has_header)


def test_progress_ends_at_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "BYTES", 10)
    (tmp_path / "t").write_text("1 2\n" * 20)
    shares = []
    table = Table(tmp_path / "t")
    for _ in table.pieces({"0": "id", "1": "id"}, BadRows(), lambda path, share, count: shares.append((share, count))):
        pass
    assert shares == sorted(shares)
    assert shares[-1] == (1.0, 20)


@pytest.mark.parametrize("is_fast", [True, False])
def test_spaces_around_a_cell_do_not_count(is_fast, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text('src, dst ,a\na, b,1 \n b ,c, 2\n" c ","a b", 3 \n')
    if not is_fast:
        monkeypatch.setattr(Table, "by_pandas", lambda *_: None)
    table = Table(tmp_path / "t.csv")
    [piece] = table.pieces({"src": "key", "dst": "key", "a": "cell"}, BadRows())
    assert table.names == ["src", "dst", "a"]
    assert [piece.columns[name].tolist() for name in ("src", "dst")] == [["a", "b", "c"], ["b", "c", "a b"]]
    assert [as_number(str(cell)) for cell in piece.columns["a"]] == [1, 2, 3]


def two_columns_of_one_name(tmp_path):
    (tmp_path / "t").write_text("id,a,a\n1,2,3\n")
    Table(tmp_path / "t")


def compressed(folder, bent):
    """Write a compressed table whose bytes ``bent`` has damaged, and read it."""
    content = gzip.compress("".join(f"{i} {i * 7919 % 1000}\n" for i in range(5000)).encode())
    (folder / "t.gz").write_bytes(bent(content))
    list(Table(folder / "t.gz").pieces({"0": "id", "1": "id"}, BadRows()))


def damaged(content):
    half = len(content) // 2
    return content[:half] + bytes(40) + content[half + 40 :]


def line_of_20_mib(folder, monkeypatch, name, text):
    """Read a table with a cell of 20 MiB; lines are limited, since some MB of gzip may expand to some GB."""
    monkeypatch.setattr(rows, "BYTES", 2)
    content = text.format("7" * (20 << 20)).encode()
    (folder / name).write_bytes(gzip.compress(content) if name == "t.gz" else content)
    list(Table(folder / name, delimiter=" ").pieces({"0": "id", "1": "id"}, BadRows()))


def pipe(folder, name):
    os.mkfifo(folder / name)
    Table(folder / name)


def whole_number_beyond_int64(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install hoptrain[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": pyarrow.array([1, 2**63], pyarrow.uint64())}), tmp_path / "t.parquet")
    list(Table(tmp_path / "t.parquet").pieces({"a": "id"}, BadRows()))


MISTAKES = {
    "two columns of one name": Mistake(two_columns_of_one_name, value="id, a, a", rule="two columns one name", remedy="correct header"),
    "a file that is cut off": Mistake(
        lambda tmp_path: compressed(tmp_path, lambda content: content[:-20]), value="t.gz", rule="not read", remedy="write file"
    ),
    # zlib decides whether the bytes or one of the lines cannot be read.
    "a file that is damaged": Mistake(lambda tmp_path: compressed(tmp_path, damaged), value="t.gz", rule="t.gz", remedy="write"),
    **{
        f"a line without end {place} of {name}": Mistake(
            lambda tmp_path, monkeypatch, name=name, text=text: line_of_20_mib(tmp_path, monkeypatch, name, text),
            value=name,
            rule="line 16 MiB row",
            remedy="write file",
        )
        for place, text in (("at the start", "{}\n"), ("in the middle", "1 2\n{}\n"), ("at the end", "1 2\n3 4\n{}"))
        for name in ("t.csv", "t.gz")
    },
    **{
        f"a pipe called {name}": Mistake(
            lambda tmp_path, name=name: pipe(tmp_path, name), value=name, rule="read regular file", remedy="write file"
        )
        for name in ("t.csv", "t.gz", "t.parquet")
    },
    "a whole number beyond int64": Mistake(
        whole_number_beyond_int64, value="9223372036854775808", rule="column integers below 2**63", remedy="convert texts"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
