"""Data sets from tables: the arrays that are read, and the messages about invalid rows."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, load_dataset, load_hetero_dataset
from hoptrain.engine.datasets import list_datasets
from hoptrain.engine.datasets.tables import rows
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.folders import read_hetero_tables, read_tables_and_ids
from hoptrain.engine.datasets.tables.reading import Reading

PAPERS = "id,year,score,label,split\np1,1,0.5,graphs,train\np2,2,1.5,,\n007,3,-2,trees,Valid\n7,4,0,graphs,test\n"
AUTHORS = "id,a\n10,1\n-3,0\n12,1\n"
WRITES = "src,dst,weight,time,note\n12,7,0.5,30,x\n10,p1,1,10,y\n12,007,2,20,z\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)
    monkeypatch.setattr(rows, "BYTES", 10)  # so that every table is read in several pieces


def write(folder, **changes):
    files = {
        "nodes/paper": PAPERS,
        "nodes/author": AUTHORS,
        "edges/author__writes__paper": WRITES,
        "edges/paper__cites__paper": "src,dst\np1,7\n",
    }
    for name, text in (files | changes).items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    return folder


def check(data):
    assert data.graph.num_nodes == {"author": 3, "paper": 4}
    writes, cites = (data.graph.relations[key] for key in (("author", "writes", "paper"), ("paper", "cites", "paper")))
    order = np.argsort(writes.ids_of(np.arange(3)))
    assert writes.indices[order].tolist() == [2, 0, 2]
    assert writes.destinations()[order].tolist() == [3, 0, 2]
    assert writes.weights[order].tolist() == [0.5, 1, 2]
    assert writes.times[order].tolist() == [30, 10, 20]
    assert (cites.indices.tolist(), cites.destinations().tolist()) == ([0], [3])
    assert data.x["paper"].tolist() == [[1, 0.5], [2, 1.5], [3, -2], [4, 0]]
    assert (data.x["paper"].dtype, data.x["author"].dtype) == (np.float32, np.uint8)
    assert (data.seed_type, data.y.tolist(), data.meta["classes"]) == ("paper", [0, -1, 1, 0], ["graphs", "trees"])
    assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [0], "val": [2], "test": [3]}


def test_tables_wherever_they_lie(tmp_path):
    folder = write(tmp_path / "mine")
    (folder / "nodes" / "author.csv").rename(tmp_path / "people.csv")
    nodes = {"author": str(tmp_path / "people.csv"), "paper": folder / "nodes" / "paper.csv"}
    edges = {
        (kind, name, "paper"): folder / "edges" / f"{kind}__{name}__paper.csv" for kind, name in (("author", "writes"), ("paper", "cites"))
    }
    data = read_hetero_tables(nodes, edges, name="ours")
    check(data)
    assert (data.name, data.meta["source"]) == ("ours", "tables: people.csv, paper.csv, author__writes__paper.csv, paper__cites__paper.csv")


def test_a_heterogeneous_graph(tmp_path):
    folder = write(tmp_path / "mine")
    data = load_hetero_dataset(str(folder))
    check(data)
    check(load_hetero_dataset("mine", root=tmp_path))
    assert data.meta["columns"]["author:writes:paper"]["note"] == {"kind": "category", "categories": ["x", "y", "z"], "mean": 1.0}
    assert data.edge_attr["author", "writes", "paper"].tolist() == [[0], [1], [2]]
    assert load_hetero_dataset(str(folder)).path == data.path
    assert [entry.about for entry in list_datasets(tmp_path) if entry.name == "mine"] == ["tables of nodes and edges"]
    write(folder, **{"edges/paper__cites__paper": "src,dst\np1,7\n7,7\n"})
    assert load_hetero_dataset(str(folder)).graph.num_edges == 5


def test_missing_cells_are_filled_and_bad_rows_are_skipped_if_asked(tmp_path):
    """Every column with bad rows of all tables is reported at once; missing cells are filled, and bad rows left out, as options say."""
    papers, authors = "id,label,year,kind\np1,t,1.5,x\np2,s,,y\np3,t,2.5,\n", "id\nada\nbob\n"
    wrote = "src,dst,n\nada,p1,1\nbob,p2,\nzed,p1,3\nada,p3,2\n"
    tables = {"nodes/paper": papers, "nodes/author": authors, "edges/author__writes__paper": wrote, "edges/paper__cites__paper": None}
    folder, lines = write(tmp_path / "holes", **tables), []
    with refused("2 of 3 rows of paper.csv, 1 of 4 rows of author__writes__paper.csv", "cannot be read", "fix --skip-bad-rows"):
        read_tables_and_ids(folder, bad=BadRows(lines.append))
    assert [line.partition(": ")[2].partition(" ")[0] for line in lines] == ["year", "src"]
    assert "year is '' (also kind): " in lines[0]
    data, ids = read_tables_and_ids(folder, reading=Reading("mean"), bad=BadRows(skip=0.25))
    assert ids.tolist() == ["p1", "p2", "p3"]
    assert data.x["paper"].tolist() == [[1.5, 0], [2, 1], [2.5, 2]]
    assert data.graph.num_edges == 3


def test_labels_of_several_types(tmp_path):
    """A data set is loaded with the labels of one type; a type without labels is accepted, since link tasks need none."""
    folder = str(write(tmp_path / "mine", **{"nodes/author": "id,a,label,split\n10,1,0.5,train\n-3,0,,\n12,1,-2e3,val\n"}))
    with refused("author, paper", "labels one type trained", "seed_type data.seed_type"):
        load_hetero_dataset(folder)
    for _ in range(2):
        data = load_hetero_dataset(folder, seed_type="author", add_reverse=True)
        np.testing.assert_array_equal(data.y, np.array([0.5, np.nan, -2000], np.float32))
        assert (data.seed_type, data.num_classes, data.x["author"].tolist()) == ("author", 1, [[1], [0], [1]])
        assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [0], "val": [2]}
        check(load_hetero_dataset(folder, seed_type="paper"))
    bare = str(write(tmp_path / "bare", **{"nodes/paper": "id,f\np1,1\n007,2\n7,3\n"}))
    assert load_hetero_dataset(bare, seed_type="author").y is None
    with refused("'venue'", "seed_type type", "name author, paper"):
        load_hetero_dataset(bare, seed_type="venue")
    load_hetero_dataset(folder, seed_type="paper").save(tmp_path / "saved")
    with refused("'author'", "seed_type labels paper alone", "leave out"):
        load_hetero_dataset(str(tmp_path / "saved"), seed_type="author")


def test_a_plain_graph(tmp_path):
    folder = tmp_path / "plain"
    files = dict.fromkeys(("nodes/paper", "nodes/author", "edges/author__writes__paper", "edges/paper__cites__paper"))
    write(folder, nodes="id,f,label\na,1,0\nb,2,1\nc,3,\n", edges="src,dst,d\nc,a,0.5\na,b,1.5\n", **files)
    data = load_dataset(str(folder))
    assert isinstance(data, Dataset)
    assert data.graph.indptr.tolist() == [0, 1, 2, 2]
    assert data.graph.indices.tolist() == [2, 0]
    assert (data.x.tolist(), data.y.tolist(), data.edge_attr.tolist()) == ([[1], [2], [3]], [0, 1, -1], [[0.5], [1.5]])


def test_parquet_is_the_same(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install hoptrain[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "pq" / "nodes").mkdir(parents=True)
    (tmp_path / "pq" / "edges").mkdir()
    files = {
        "nodes/paper": {
            "id": ["p1", "p2", "007", "7"],
            "vector": [[1.0, 0.5], [2.0, 1.5], [3.0, -2.0], [4.0, 0.0]],
            "label": ["graphs", None, "trees", "graphs"],
            "split": ["train", None, "val", "test"],
        },
        "nodes/author": {"id": [10, -3, 12], "a": [1, 0, 1]},
        "edges/author__writes__paper": {"src": [12, 10, 12], "dst": ["7", "p1", "007"], "weight": [0.5, 1, 2], "time": [30, 10, 20]},
        "edges/paper__cites__paper": {"src": ["p1"], "dst": ["7"]},
    }
    for name, columns in files.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / "pq" / f"{name}.parquet")
    check(load_hetero_dataset(str(tmp_path / "pq")))


def test_tables_without_rows(tmp_path):
    data = load_hetero_dataset(
        str(write(tmp_path / "mine", **{"nodes/author": "id,a\n", "edges/author__writes__paper": "src,dst,weight,time\n"}))
    )
    assert data.graph.num_nodes == {"author": 0, "paper": 4}
    assert data.graph.relations["author", "writes", "paper"].num_edges == 0


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", **{"nodes/author": None})
    (folder / "nodes" / "author.parquet").touch()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with refused("pyarrow", "Parquet not installed", "pip install hoptrain[parquet] .csv"):
        load_hetero_dataset(str(folder))


def changed(folder, name, text):
    """Write the tables with ``text`` for the table ``name``, and read all."""
    return load_hetero_dataset(str(write(folder / "mine", **{name: text})))


def author(folder, text):
    return changed(folder, "nodes/author", text)


def paper(folder, text):
    return changed(folder, "nodes/paper", text)


def writes(folder, text):
    return changed(folder, "edges/author__writes__paper", text)


def edge_of_a_table_without_nodes(tmp_path):
    tables = {"nodes/author": "id,a\n", "edges/author__writes__paper": "src,dst\nAda,7\n"}
    load_hetero_dataset(str(write(tmp_path / "mine", **tables)))


def tables_by_path(folder):
    """Return the paths of node tables by type, and of edge tables by relation."""
    folder = write(folder / "mine")
    nodes = {name: folder / "nodes" / f"{name}.csv" for name in ("author", "paper")}
    return nodes, {("author", "writes", "paper"): folder / "edges" / "author__writes__paper.csv"}


def relation_of_a_type_without_a_table(tmp_path):
    nodes, edges = tables_by_path(tmp_path)
    read_hetero_tables(nodes, edges | {("author", "has", "field"): edges["author", "writes", "paper"]}, name="ours")


def relation_of_one_text(tmp_path):
    nodes, edges = tables_by_path(tmp_path)
    read_hetero_tables(nodes, {"writes": edges["author", "writes", "paper"]})


def path_without_a_file(tmp_path):
    nodes, edges = tables_by_path(tmp_path)
    read_hetero_tables(nodes | {"author": tmp_path / "none.csv"}, edges)


MISTAKES = {
    "a relation of a type without a table": Mistake(
        relation_of_a_type_without_a_table, value="type field", rule="each no table nodes", remedy="add column id"
    ),
    "a relation of one text": Mistake(
        relation_of_one_text, value="'writes'", rule="no relation (source destination", remedy="give three strings"
    ),
    "a path without a file": Mistake(path_without_a_file, value="none.csv", rule="read", remedy="give path file"),
    "labels of a type without a table": Mistake(
        lambda tmp_path: read_hetero_tables(*tables_by_path(tmp_path), "field"),
        value="'field'",
        rule="seed_type type",
        remedy="name author, paper",
    ),
    "an id twice": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,1\n11,0\n10,1\n"),
        value="id is '10'",
        rule="author.csv, line 4 row",
        remedy="another drop",
    ),
    "a node without an id": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,1\n,0\n12,1\n"),
        value="id is ''",
        rule="author.csv, line 3 node",
        remedy="add drop",
    ),
    "a table without ids": Mistake(
        lambda tmp_path: author(tmp_path, "name,a\n10,1\n"), value="column id", rule="author.csv node name", remedy="correct header"
    ),
    "a text as a feature": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,1\n-3,0\n12,KDD\n"),
        value="a is 'KDD'",
        rule="author.csv, line 4 finite numbers",
        remedy="fix leave column --categories",
    ),
    "an empty feature": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,1\n-3,\n12,2\n"),
        value="a is ''",
        rule="author.csv, line 3 value",
        remedy="fill --missing leave column",
    ),
    "an infinite feature": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,inf\n-3,1\n12,2\n"),
        value="a is 'inf'",
        rule="author.csv, line 2 finite numbers",
        remedy="fix leave column",
    ),
    "a row with more cells": Mistake(
        lambda tmp_path: author(tmp_path, "id,a\n10,1\n-3,1,4\n12,2\n"),
        value="3 cells",
        rule="author.csv, line 3 2",
        remedy="add cells --delimiter",
    ),
    "a text in a column without a name of ours": Mistake(
        lambda tmp_path: paper(tmp_path, PAPERS.replace("label", "venue_")),
        value="venue_ is ''",
        rule="paper.csv, line 3 value",
        remedy="fill leave column",
    ),
    "a negative label": Mistake(
        lambda tmp_path: paper(tmp_path, "id,label\n7,1\np1,-2\n007,\n"),
        value="label is '-2'",
        rule="paper.csv, line 3 classes",
        remedy="renumber",
    ),
    "no labels": Mistake(
        lambda tmp_path: paper(tmp_path, "id\n7\np1\n007\n"),
        value="no type",
        rule="labels nodes trained",
        remedy="give table column label",
    ),
    "a node to train on without a label": Mistake(
        lambda tmp_path: paper(tmp_path, PAPERS.replace("p2,2,1.5,,", "p2,2,1.5,,train")),
        value="node 1",
        rule="split train label (-1)",
        remedy="drop",
    ),
    "two splits of one meaning": Mistake(
        lambda tmp_path: Dataset(edge_index=[[0], [1]], x=np.eye(2), splits={"val": np.array([0]), "valid": np.array([1])}),
        value="valid and val",
        rule="two same split",
        remedy="leave out",
    ),
    "an edge of a table without nodes": Mistake(
        edge_of_a_table_without_nodes, value="src is 'Ada'", rule="writes__paper.csv, line 2 author.csv", remedy="add drop row"
    ),
    "edges of a type without a table": Mistake(
        lambda tmp_path: author(tmp_path, None),
        value="type author",
        rule="edges/author__writes__paper.csv each no table",
        remedy="add column id",
    ),
    "a table of edges without a relation": Mistake(
        lambda tmp_path: changed(tmp_path, "edges/writes", "src,dst\n"),
        value="writes.csv",
        rule="no relation SOURCE__NAME__DESTINATION",
        remedy="rename",
    ),
    "an unknown source": Mistake(
        lambda tmp_path: writes(tmp_path, "src,dst\n10,7\n12,p1\n99,7\n"),
        value="src is '99'",
        rule="writes__paper.csv, line 4 author.csv",
        remedy="add drop row",
    ),
    "an unknown destination": Mistake(
        lambda tmp_path: writes(tmp_path, "src,dst\n10,7\n12,07\n"),
        value="dst is '07'",
        rule="line 3 node paper.csv",
        remedy="add drop row",
    ),
    "a negative weight": Mistake(
        lambda tmp_path: writes(tmp_path, "src,dst,weight\n10,7,1\n12,7,-1\n"),
        value="weight is '-1'",
        rule="line 3 finite weights",
        remedy="fix drop row",
    ),
    "a time in fractions": Mistake(
        lambda tmp_path: writes(tmp_path, "src,dst,time\n10,7,1\n12,7,1.5\n"),
        value="time is '1.5'",
        rule="line 3 whole numbers",
        remedy="smaller unit",
    ),
    "one table beside folders of tables": Mistake(
        lambda tmp_path: changed(tmp_path, "nodes", "id\n1\n"), value="nodes.csv", rule="folders tables", remedy="remove one"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
