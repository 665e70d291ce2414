"""``hoptrain data import``: the data set made from tables, and the messages about wrong rows."""

import gzip
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import exits

from hoptrain.engine import Dataset
from hoptrain.engine.datasets.tables import plain, rows
from hoptrain.trainers.cli import main

EDGES = "source,target,weight,kind\nann,bob,1,5\nbob,cid,0.5,6\n# a comment\ncid,ann,2,7\n\nann,dan,1,8\nbob,ann,3,9\n"
FEATURES = "id,age,h\nbob,1,0.5\nann,2,1.5\ncid,3,0\ndan,4,1\n"
LABELS = "id,team\nann,red\nbob,blue\ncid,red\n"
SPLIT = "id,part\nann,train\nbob,val\ncid,test\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "BYTES", 16)  # so that every table is read in several pieces
    for name, text in {"edges.csv": EDGES, "x.csv": FEATURES, "y.csv": LABELS, "split.csv": SPLIT}.items():
        (tmp_path / name).write_text(text)


def imported(*options, code=0):
    assert main(["data", "import", "--out", "mine", *map(str, options)]) == code
    return Dataset.open("mine") if code == 0 else None


def pairs(data):
    """Return the edges in the order of their ids: (source, destination)."""
    order = np.argsort(data.graph.ids_of(np.arange(data.graph.num_edges)))
    return list(zip(data.graph.indices[order].tolist(), data.graph.destinations()[order].tolist(), strict=True))


def test_tables_with_names_for_ids(capsys):
    data = imported("--edges", "edges.csv", "--features", "x.csv", "--labels", "y.csv", "--split", "split.csv")
    assert pairs(data) == [(1, 0), (0, 2), (2, 1), (1, 3), (0, 1)]
    order = np.argsort(data.graph.ids_of(np.arange(5)))
    assert data.graph.weights[order].tolist() == [1, 0.5, 2, 1, 3]
    assert data.edge_attr.tolist() == [[5], [6], [7], [8], [9]]
    assert data.x.tolist() == [[1, 0.5], [2, 1.5], [3, 0], [4, 1]]
    assert (data.y.tolist(), data.meta["classes"]) == ([0, 1, 1, -1], ["blue", "red"])
    assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [1], "val": [0], "test": [2]}
    assert Path("mine/ids.csv").read_text().splitlines() == ["node,id", "0,bob", "1,ann", "2,cid", "3,dan"]
    assert "num_nodes=4, num_edges=5" in capsys.readouterr().out


def test_without_features_nodes_are_in_the_order_of_their_ids(tmp_path):
    (tmp_path / "web.txt.gz").write_bytes(gzip.compress(b"# Nodes: 4\n# From\tTo\n30\t7\n7\t1000000\n8\t7\n"))
    data = imported("--edges", "web.txt.gz")
    assert pairs(data) == [(2, 0), (0, 3), (1, 0)]
    assert Path("mine/ids.csv").read_text().splitlines()[1:] == ["0,7", "1,8", "2,30", "3,1000000"]
    assert data.x is None


def test_ids_that_are_numbers_of_nodes_need_no_file(tmp_path):
    (tmp_path / "edges.txt").write_text("2 0\n0 1\n1 0\n")
    assert pairs(imported("--edges", "edges.txt")) == [(2, 0), (0, 1), (1, 0)]
    assert not (tmp_path / "mine" / "ids.csv").exists()


def test_columns_take_the_usual_names(tmp_path):
    (tmp_path / "calls.csv").write_text("ann;bob;2;7;1\nbob;ann;3;8;0\n")
    data = imported("--edges", "calls.csv", "--columns", "From,to,weights,timestamp,date")
    assert (pairs(data), data.graph.weights.tolist(), data.graph.times.tolist()) == ([(0, 1), (1, 0)], [3, 2], [8, 7])
    assert list(data.meta["columns"]["edge_attr"]) == ["date"]


def test_labels_bring_nodes_without_edges(tmp_path):
    (tmp_path / "labels.csv").write_text("zoe,1\nann,0\n")
    data = imported("--edges", "edges.csv", "--columns", "src,dst,-,-", "--labels", "labels.csv")
    assert data.y.tolist() == [0, -1, -1, -1, 1]
    assert data.graph.weights is None
    assert data.edge_attr is None


def test_an_undirected_graph(tmp_path, capsys):
    data = imported("--edges", "edges.csv", "--drop", "weight", "--undirected")
    assert sorted(pairs(data)) == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0)]
    assert [data.edge_attr[i, 0] for i in data.graph.ids_of(np.arange(8))] == [5, 7, 8, 5, 6, 7, 6, 8]
    (tmp_path / "mine").rename(tmp_path / "before")
    both = imported("--edges", "edges.csv", "--undirected")
    weights = dict(zip(zip(both.graph.indices.tolist(), both.graph.destinations().tolist(), strict=True), both.graph.weights, strict=True))
    assert weights == {
        (0, 1): 1,
        (1, 0): 1,
        (1, 2): 0.5,
        (2, 1): 0.5,
        (2, 0): 2,
        (0, 2): 2,
        (0, 3): 1,
        (3, 0): 1,
    }  # bob,ann repeats ann,bob
    assert both.meta["repeated_rows"] == 1
    assert "edges.csv: 1 repeated edges are left out" in capsys.readouterr().out
    (tmp_path / "calls.csv").write_text("src,dst,time\n0,1,5\n1,0,6\n1,1,7\n")
    (tmp_path / "mine").rename(tmp_path / "other")
    timed = imported("--edges", "calls.csv", "--undirected")
    assert pairs(timed) == [(0, 1), (1, 0), (1, 1), (1, 0), (0, 1)]
    assert sorted(timed.graph.times.tolist()) == [5, 5, 6, 6, 7]


def test_arrays(tmp_path):
    (tmp_path / "edges.tsv").write_text("0\t1\t30\tx\n4\t1\t20\ty\n")
    np.save("x.npy", np.linspace(0, 1, 10).reshape(5, 2))
    np.save("y.npy", np.array([0, 1, 0, -1, 1]))
    data = imported("--edges", "edges.tsv", "--columns", "src,dst,time,-", "--features", "x.npy", "--labels", "y.npy", "--split", "random")
    assert (data.x.dtype, data.graph.num_nodes, data.graph.times.tolist()) == (np.float32, 5, [30, 20])
    assert sorted(np.concatenate(list(data.splits.values())).tolist()) == [0, 1, 2, 4]


def test_names_of_columns_in_any_case(tmp_path, capsys):
    (tmp_path / "e.csv").write_text("Source,Target,Weight,TIME,Age\n0,1,2.5,7,1\n")
    (tmp_path / "v.csv").write_text("Age,ID\n5,0\n6,1\n")
    (tmp_path / "l.csv").write_text("Id,Label,Split,other\n0,1,test,9\n")
    data = imported("--edges", "e.csv", "--features", "v.csv", "--labels", "l.csv")
    assert (data.graph.weights.tolist(), data.graph.times.tolist(), data.edge_attr.tolist()) == ([2.5], [7], [[1]])
    assert data.x.tolist() == [[5], [6]]
    assert (data.y.tolist(), {name: ids.tolist() for name, ids in data.splits.items()}) == ([1, -1], {"test": [0]})
    assert ", edges with weights, times, features (1)" in capsys.readouterr().out


def test_labels_may_be_a_column_of_the_features(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("id,age,Topic\nann,1,red\nbob,2,blue\ncid,3,\ndan,4,red\n")
    data = imported("--edges", "edges.csv", "--features", "x.csv", "--missing", "zero")
    assert data.y is None
    assert "if one of the features of nodes is it, rename the column, or give --labels COLUMN" in capsys.readouterr().out
    (tmp_path / "mine").rename(tmp_path / "before")
    data = imported("--edges", "edges.csv", "--features", "x.csv", "--labels", "topic", "--split", "test")
    assert (data.x.tolist(), data.y.tolist(), data.meta["classes"]) == ([[1], [2], [3], [4]], [1, 0, -1, 1], ["blue", "red"])
    (tmp_path / "mine").rename(tmp_path / "first")
    (tmp_path / "x.csv").write_text("Topic,id,age\nblue,ann,1\nblue,bob,2\nred,cid,3\nred,dan,4\n")
    assert imported("--edges", "edges.csv", "--features", "x.csv", "--like", "first").y.tolist() == [0, 0, 1, 1]


def test_labels_that_are_targets(tmp_path):
    (tmp_path / "y.csv").write_text("ann,0.5\nbob,2\ncid,\n")
    data = imported("--edges", "edges.csv", "--features", "x.csv", "--labels", "y.csv")
    assert data.is_regression
    np.testing.assert_array_equal(data.y, np.array([2, 0.5, np.nan, np.nan], np.float32))


def test_parquet_is_the_same(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install hoptrain[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"from": ["ann", "bob"], "to": ["bob", "ann"], "weight": [0.5, 1]}
    parquet.write_table(pyarrow.table(columns), "edges.parquet")
    parquet.write_table(pyarrow.table({"id": ["ann", "bob"], "v": [[1.0, 2.0], [0.5, 1.0]]}), "x.parquet")
    data = imported("--edges", "edges.parquet", "--features", "x.parquet")
    assert (pairs(data), data.x.tolist()) == ([(0, 1), (1, 0)], [[1, 2], [0.5, 1]])
    parquet.write_table(pyarrow.table({"a": [5, 7], "b": [7, 5], "w": [0.5, -1]}), "e.parquet")
    (tmp_path / "mine").rename(tmp_path / "other")
    imported("--edges", "e.parquet", "--columns", "src,dst,weight", code=2)


BAD = 'source,target,weight\nann,bob,1\nbob,cid,-0.5\n# a comment\ncid,ann\neve,ann,2\n,bob,1\n"ann,bob,1\nann,dan,1\n'
MESSAGES = [
    "bad.csv, line 3: weight is '-0.5': weights must be finite and 0 or more; fix it, or drop the row",
    "bad.csv, line 5: it has '2 cells': it must have 3, as the first line; add or drop cells, or give the --delimiter",
    "bad.csv, line 6: src is 'eve': no node of x.csv has this id; add it there, or drop the row",
    "bad.csv, line 7: src is '': each node must have an id; add one or drop the row",
    "bad.csv, line 8: it is '\"ann,bob,1': quotes must be closed in the same line; close the quote",
]


@pytest.mark.parametrize("size", [16, 1 << 24])
def test_each_bad_row_is_named(size, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rows, "BYTES", size)
    (tmp_path / "bad.csv").write_text(BAD)
    imported("--edges", "bad.csv", "--features", "x.csv", code=2)
    *messages, last = capsys.readouterr().err.splitlines()
    assert sorted(messages) == MESSAGES
    assert last.startswith("hoptrain: 5 of 7 rows of bad.csv cannot be read: fix them")
    imported("--edges", "bad.csv", "--features", "x.csv", "--skip-bad-rows", code=2)
    assert capsys.readouterr().err.endswith("at most 5% may be left out of a file; fix them, or allow more with --skip-bad-rows 0.72\n")
    assert not (tmp_path / "mine").exists()
    data = imported("--edges", "bad.csv", "--features", "x.csv", "--skip-bad-rows", 0.72)
    assert pairs(data) == [(1, 0), (1, 3)]
    assert data.meta["skipped_rows"] == {"bad.csv": 5}
    assert "bad.csv: 5 of 7 rows cannot be read and are left out" in capsys.readouterr().out


LABELLED = {"x": "id,a,label,split\n0,1,2,train\n1,2,3,test\n"}


def test_missing_cells_of_many_columns_are_one_line(tmp_path, capsys):
    names = [f"h{number}" for number in range(34)]
    (tmp_path / "x.csv").write_text(f"id,{','.join(names)}\nann{',' * 34}\nbob{',' * 34}\ncid,x,{',' * 32}\ndan{',1' * 34}\n")
    imported("--edges", "edges.csv", "--features", "x.csv", code=2)
    line, other, last = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "x.csv, line 2 and 2 more of 4 rows: h0 is '' (also h1, h2, h3, h4, h5, h6, h7 and 26 more): each cell needs a value; fill"
    )
    assert other.startswith("x.csv, line 4: h0 is 'x': other cells are numbers")
    assert last.startswith("hoptrain: 3 of 4 rows of x.csv cannot be read")


def test_many_bad_rows_are_one_line(tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("src,dst\n0,1\n" + "x,1\n" * 30)
    imported("--edges", "bad.csv", code=2)
    messages = capsys.readouterr().err.splitlines()
    assert messages[0].startswith("bad.csv, line 3 and 29 more of 31 rows: src is 'x': the first ids are whole numbers, so all must be")
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"e": "0 1 2\n"}, (), "e has 3 columns and no header: their roles must be given; give --columns src,dst,weight"),
        ({"e": "0 1 2\n"}, ("--columns", "src,dst"), "--columns src,dst: e has 3 columns (0, 1, 2), which must include src and dst"),
        (
            {"e": "0 1 2\n"},
            ("--columns", "src,src,dst"),
            "--columns src,src,dst: e has 3 columns (0, 1, 2), which must include src and dst",
        ),
        ({"e": "0 1\n"}, ("--drop", "foo"), "--drop foo: no table has such a column; give an existing column, or leave it out"),
        ({"e": "src,dst\n"}, (), "e and the other files contain no node: at least one row must be readable"),
        ({"e": "src,dst\nx\n"}, ("--skip-bad-rows",), "e and the other files contain no node: at least one row must be readable"),
        (
            {"e": "0 1\n", "s": "id,train_mask,val_mask\n0,1,0\n1,no,1\n"},
            ("--split", "s"),
            "s, line 3: train_mask is 'no': a mask must be true or false, or 1 or 0",
        ),
        (
            {"e": "0 1\n", "s": "id,train_mask,split\n0,1,test\n"},
            ("--split", "s"),
            "s has the columns split and train_mask: splits must have one source",
        ),
        ({"e": "0 1\n"}, ("--skip-bad-rows", "2"), "argument --skip-bad-rows: 2: it must be a share from 0 to 1"),
        ({"e": "0 1\n"}, ("--missing", "median"), "'median' is unknown: it must be one of error, mean, zero"),
        ({"e": "0 1\n07 1\n"}, (), "e, line 2: src is '07': the first ids are whole numbers, so all must be"),
        ({"e": "0 1\n"}, ("--delimiter", "ab"), "--delimiter is 'ab': it must be one character, tab or space; give for example"),
        ({"e": "# nothing\n"}, (), "e is empty: a table needs one row per line"),
        ({"e": "src\n1\n"}, (), "e has the one column src: an edge needs two"),
        ({"e": "0 1\n", "y": "0,1\n0,2\n"}, ("--labels", "y"), "y, line 2: id is '0': each node must have one row"),
        ({"e": "0 1\n", "y": "0,1,5\n0,2,7\n"}, ("--labels", "y"), "y has the columns 0, 1, 2: it needs two, id and label"),
        ({"e": "0 1\n", "y": "0,1\na,2\n"}, ("--labels", "y"), "y, line 2: id is 'a': no node of the edges has this id"),
        ({"e": "0 1\n", "x": "id,a\n0,1\n"}, ("--features", "x"), "e, line 1: dst is '1': no node of x has this id"),
        ({"e": "0 1\n", "x": "id,a\n0,1\n1,KDD\n"}, ("--features", "x"), "x, line 3: a is 'KDD': other cells are numbers"),
        ({"e": "0 1\n"}, ("--features", "no.csv"), "no.csv cannot be read"),
        ({"e": "0 1\n"}, ("--features", "x.npy"), "e, line 1: dst is '1': the array of features or labels has rows 0 to 0"),
        ({"e": "0 1\n"}, ("--split", "x.npy"), "x.npy: a split must be a table of ids and names of splits, or 'random' or 'test'"),
        ({"e": "0 1\n", "x.npy": "0 1"}, ("--features", "x.npy"), "x.npy cannot be read"),
        ({"e": "0 1\n"}, ("--features", "names.npy"), "names.npy is <U1: features and labels must be real numbers; encode them"),
        (
            {"e": "0 1\n", **LABELLED, "y": "0,1\n1,2\n"},
            ("--features", "x", "--labels", "y"),
            "x and y have a label column of nodes: only one file may; leave the column out",
        ),
        (
            {"e": "0 1\n", **LABELLED},
            ("--features", "x", "--split", "random"),
            "x and --split random have a split column of nodes: only one file may",
        ),
        ({"e": "0 1\n", "y": "0,1\n1,2\n"}, ("--labels", "y", "--split", "random"), "mine: 2 labelled nodes cannot be split at random"),
        (
            {"e": "cited,citing\nann,bob\nbob,ann\n"},
            (),
            "e begins with cited,citing: cited and citing occur in no other row, so these may be column names; if it has column names, give --header",
        ),
        (
            {"e": "cited,citing\nann,bob\nbob,ann\n", "x": "id,a\nann,1\nbob,2\n"},
            ("--features", "x", "--skip-bad-rows", "0.5"),
            "e begins with cited,citing: cited is the id of no node, so these may be column names; if it has column names, give --header",
        ),
        (
            {"e": "ann,bob\nbob,ann\n", "y": "paper,topic\nann,red\n"},
            ("--labels", "y"),
            "y begins with paper,topic: paper occurs in no other row, so these may be column names; if it has column names, give --header",
        ),
        (
            {"e": "ann,bob\nbob,ann\n", "x": "paper,topic\nann,red\nbob,blue\n", "s": "paper,part\nann,train\n"},
            ("--features", "x", "--split", "s"),
            "x begins with paper,topic: paper occurs in no other row, so these may be column names; if it has column names, give --header",
        ),
        (
            {"e": "time,flies\nflies,like\nlike,time\n"},
            (),
            "e begins with time,flies: it was read as column names, but time is also the id of a node; if it has column names, give --header; "
            "if it is a row, give --no-header (both apply to all files), or write the line src,dst above it",
        ),
        (
            {"e": "war,peace\nwar,1914\n"},
            (),
            "e begins with war,peace: it was read as column names, but war is also the id of a node",
        ),
        (
            {"e": "0 1\n"},
            ("--split", "test"),
            "mine: no node has a label: a test needs labels; name the column of labels, or leave --split test",
        ),
        (
            {"e": "0 1\n", **LABELLED},
            ("--features", "x", "--labels", "topic"),
            "--labels topic: it is neither a file nor a column of x, which has id, a",
        ),
        ({"e": "0 1\n", **LABELLED}, ("--features", "x", "--labels", "a"), "x has the columns a and label: only one can have the labels"),
        ({"e": "0 1\n"}, ("--feature", "x"), "unrecognized arguments: --feature x"),
    ],
)
def test_wrong_tables_are_named_in_one_line(files, options, message, tmp_path, capsys):
    np.save("x.npy", np.ones((1, 2)))
    np.save("names.npy", np.array([["a"], ["b"]]))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    imported("--edges", "e", *options, code=2)
    assert any(line.removeprefix("hoptrain: ").startswith(message) for line in capsys.readouterr().err.splitlines())
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("text", "options", "names"),
    [
        ("ann,bob\nbob,cid\n", (), ["ann", "bob", "cid"]),  # bob is in another row
        ("time,flies\nflies,like\n", ("--no-header",), ["flies", "like", "time"]),
        ("cited,citing\nann,bob\n", ("--header",), ["ann", "bob"]),
        ("cited,citing\nann,bob\n", ("--no-header",), ["ann", "bob", "cited", "citing"]),
        ("citing,cited,since\nann,bob,2021-03-04\n", (), ["ann", "bob"]),  # a text above a date
    ],
)
def test_a_first_line_of_texts(text, options, names, tmp_path):
    (tmp_path / "e").write_text(text)
    imported("--edges", "e", *options)
    assert [line.partition(",")[2] for line in Path("mine/ids.csv").read_text().splitlines()[1:]] == names


def test_the_columns_that_become_features(tmp_path, capsys, caplog):
    (tmp_path / "x.csv").write_text("id,age,team\nann,1,red\nbob,2,blue\ncid,3,red\ndan,4,blue\n")
    imported("--edges", "edges.csv", "--features", "x.csv", "--split", "random")
    out = capsys.readouterr().out
    assert "no labels: a column of labels must be named label, labels, class, y or target; " in out
    assert "features of nodes: age, team\n" in out
    assert "features of edges: kind\n" in out
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("mine: no labels, so split random divides all 4 nodes: name the column of labels label, ")
    (tmp_path / "mine").rename(tmp_path / "other")
    caplog.clear()
    imported("--edges", "edges.csv", "--features", "x.csv", "--labels", "y.csv")
    assert "no labels" not in capsys.readouterr().out
    assert not caplog.records


def test_nothing_is_written_over(capsys):
    imported("--edges", "edges.csv")
    imported("--edges", "edges.csv", code=2)
    assert "mine exists: dataset folders are not overwritten" in capsys.readouterr().err


def test_text_of_other_encodings_and_line_ends(tmp_path, capsys):
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbfsrc,dst\r\nJos\xc3\xa9,b\r\n\r\nb,c\r\n")
    assert pairs(imported("--edges", "e.csv")) == [(0, 1), (1, 2)]
    assert "José" in (tmp_path / "mine" / "ids.csv").read_text("utf-8")
    (tmp_path / "e.csv").write_bytes(b"src,dst\nb,c\nJos\xe9,b\n")
    (tmp_path / "mine").rename(tmp_path / "other")
    imported("--edges", "e.csv", code=2)
    assert "e.csv, line 3: it is 'Jos\ufffd,b': text must be UTF-8" in capsys.readouterr().err


def test_sigterm_leaves_nothing(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    heard, write = os.pipe2(os.O_NONBLOCK)
    listener = signal.set_wakeup_fd(write)  # like the wake-up descriptor of an earlier run in this process, which would end the process

    def killed(*_, scratch, **__):
        assert scratch.is_dir()
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(plain, "read_plain", killed)
    with exits(128 + signal.SIGTERM):
        main(["data", "import", "--edges", "edges.csv", "--out", "mine"])
    assert not [path for path in Path().iterdir() if "mine" in path.name]
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(listener) == write
    with pytest.raises(BlockingIOError):  # the descriptor received nothing
        os.read(heard, 1)
    os.close(heard)
    os.close(write)


def test_info_names_every_feature_column(capsys):
    """It prints the ranges of the first 19 columns, and the names of all others in lines of at most 120 characters."""
    names = [f"measurement_{number}" for number in range(40)]
    Path("wide.csv").write_text(
        f"id,{','.join(names)}\n" + "".join(f"{id},{','.join(['1.5'] * 40)}\n" for id in ("ann", "bob", "cid", "dan"))
    )
    imported("--edges", "edges.csv", "--features", "wide.csv")
    capsys.readouterr()
    assert main(["data", "info", "mine"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in names if name not in re.split(r"[\s,]+", printed)] == []
    assert "21 more: measurement_19, measurement_20," in printed
    assert max(map(len, printed.splitlines())) <= 120
