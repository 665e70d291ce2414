"""New tables read like those of another data set: the same columns, numbers, classes and options, or an error in one line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain import HeteroDataset, InputError, from_pandas, load_hetero_dataset, read_hetero_tables
from hoptrain.engine import Dataset
from hoptrain.engine.store import HEADER
from hoptrain.trainers.cli import main

TABLES = {
    "nodes/author": "id,h,country\nann,1,no\nbob,3,de\n",
    "nodes/paper": "id,year,venue,label,split\np1,2000,KDD,graphs,train\np2,,VLDB,trees,val\np3,2010,,graphs,test\n",
    "edges/author__writes__paper": "src,dst,role,note,weight\nann,p1,first,n1,1\nbob,p2,last,,\nbob,p3,first,n3,3\n",
    "edges/paper__cites__paper": "source,target,date\np1,p2,2021-03-04\n",
}
NEW = {
    "nodes/author": "country,id,h\nno,cid,7\n",
    "nodes/paper": "venue,id,year\nVLDB,q1,\n,q2,2020\n",
    "edges/author__writes__paper": "src,dst,role,weight\ncid,q1,last,\ncid,q2,last,5\n",
    "edges/paper__cites__paper": "source,target,date\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))


def write(folder, tables, **changes):
    """Write tables below the folder, with changes by name: a text, or None for no table."""
    for name, text in (tables | {name.replace("_in_", "/"): text for name, text in changes.items()}).items():
        if text is not None:
            path = Path(folder, f"{name}.csv")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def converted(folder, *options, out, code=0):
    assert main(["data", "convert", folder, out, *options]) == code
    return HeteroDataset.open(out) if code == 0 else None


@pytest.fixture
def papers():
    write("mine", TABLES)
    return converted("mine", "--missing", "mean", "--drop", "note", out="papers")


def test_new_tables_of_several_types_become_the_same_numbers(papers, capsys):
    """Categories, means, dates, classes, the seed type and the dropped column are those of the training data; types and columns have its order."""
    write("new", NEW)
    data = converted("new", "--like", "papers", out="newer")
    out = capsys.readouterr().out
    assert (list(data.graph.num_nodes), list(data.graph.relations)) == (list(papers.graph.num_nodes), list(papers.graph.relations))
    assert (data.seed_type, data.y, data.meta["classes"]) == ("paper", None, ["graphs", "trees"])
    assert data.x["author"].tolist() == [[7, 1]]
    assert data.x["paper"].tolist() == [[2005, 1], [2020, 2]]
    assert data.edge_attr["author", "writes", "paper"].tolist() == [[1], [1]]
    assert data.graph.relations["author", "writes", "paper"].weights.tolist() == [2, 5]
    assert (
        "predict, with a CHECKPOINT of the training on papers (RUN_FOLDER/checkpoints/last.ckpt): hoptrain predict --ckpt_path CHECKPOINT"
        in out
    )
    assert "--ckpt_path CHECKPOINT --data.dataset newer --out predictions.csv\n" in out
    again = read_hetero_tables(
        {kind: f"new/nodes/{kind}.csv" for kind in ("paper", "author")},
        {tuple(name.split("__")): f"new/edges/{name}.csv" for name in ("paper__cites__paper", "author__writes__paper")},
        like=data.with_reverse(),
    )
    assert (list(again.x), again.x["paper"].tolist()) == (["author", "paper"], [[2005, 1], [2020, 2]])


def test_warnings_name_the_new_data_set(caplog):
    write("mine", TABLES, edges_in_paper__cites__paper="src,dst,note\n" + "".join(f"p1,p2,text {number}\n" for number in range(30)))
    data = converted("mine", "--missing", "mean", out="other")
    assert data.name == "other"
    assert "other: a HeteroDataset cannot store paper__cites__paper.csv: note" in caplog.text


def test_convert_tells_what_it_wrote_and_the_command_that_trains(papers, capsys):
    write("mine", TABLES)
    converted("mine", "--missing", "mean", "--drop", "note", out="other")
    lines = capsys.readouterr().out.splitlines()
    found = {line.split("  ")[0]: line.rpartition("  ")[2] for line in lines}
    assert found["type paper"] == "3 nodes, 2 features (float32): year, venue"
    assert found["relation author:writes:paper"] == "3 edges, weights, 1 features (float32): role"
    assert found["relation paper:cites:paper"] == "1 edges, times"
    assert found["labels"] == "of paper: 2 classes (graphs, trees)"
    assert "missing cells of author:writes:paper filled: weight (1 with 2)" in lines
    assert lines[-2:] == ["for details, run: hoptrain data info other", "train: hoptrain fit --config own_hetero --data.dataset other"]


@pytest.mark.parametrize(
    ("paper", "author", "options", "last"),
    [
        ("id,label\np1,a\np2,b\np3,a\n", "id,h\n", (), "--data.splits random"),
        ("id,label\np1,a\np2,b\np3,a\n", "id,h\n", ("--split", "random"), "--config own_hetero --data.dataset out --model.embeddings true"),
        ("id,label\np1,0.5\np2,1\np3,2\n", "id,label\n", ("--split", "random", "--seed-type", "paper"), "--model.metric r2"),
        (
            "id\np1\np2\n",
            "id\n",
            ("--seed-type", "paper"),
            "own_hetero_links --data.dataset out --data.sampler.relation '[paper,cites,paper]'",
        ),
    ],
)
def test_the_next_step_fits_the_data(paper, author, options, last, capsys):
    write("mine", {"nodes/paper": paper, "nodes/author": author, "edges/paper__cites__paper": "src,dst\np1,p2\n"})
    converted("mine", *options, out="out")
    assert last in capsys.readouterr().out.splitlines()[-1]


def test_unknown_categories_are_refused_unless_they_count_as_missing(papers, capsys):
    write("new", NEW, nodes_in_author="id,h,country\ncid,7,fr\n", nodes_in_paper="id,year,venue\nq1,2001,NIPS\nq2,2020,KDD\n")
    converted("new", "--like", "papers", out="newer", code=2)
    told = capsys.readouterr().err
    assert "country is 'fr': papers has no such category; fix it, or count such cells as missing with --missing mean" in told
    assert "venue is 'NIPS': papers has no such category" in told
    data = converted("new", "--like", "papers", "--missing", "mean", out="newer")
    assert data.x["author"].tolist() == [[7, 0.5]]  # training had no missing country: the mean of its numbers
    assert data.x["paper"].tolist() == [[2001, 2], [2020, 0]]  # the number of missing venues


def test_ids_survive_reverse_relations_and_another_conversion(papers):
    ids = Path("papers/ids.csv").read_text()
    assert (load_hetero_dataset("papers", add_reverse=True).path / "ids.csv").read_text() == ids
    converted("papers", out="copy")
    assert Path("copy/ids.csv").read_text() == ids


def test_a_folder_without_recorded_options_is_read_as_before():
    """A folder of an earlier version has neither options nor means: the options have to be repeated, and it lacks the mean."""
    people = pd.DataFrame({"id": ["a", "b"], "n": [1, 3], "town": ["Rome", "Oslo"]})
    edges = pd.DataFrame({"src": ["a"], "dst": ["b"], "weight": [2.0]})
    from_pandas(edges, people, undirected=True).save("old")
    header = json.loads(Path("old", HEADER).read_text())
    del header["meta"]["info"]["options"]
    for columns in header["meta"]["info"]["columns"].values():
        for entry in columns.values():
            entry.pop("mean", None)
    Path("old", HEADER).write_text(json.dumps(header))
    old = Dataset.open("old")
    data = from_pandas(edges.drop(columns="weight"), people[::-1], like=old)
    assert (data.x.tolist(), data.graph.num_edges) == ([[3, 0], [1, 1]], 1)
    people["n"] = [1, None]
    with pytest.raises(ValueError, match=r"row 2: n is 'nan': old has no mean of the column.* make it again from its tables"):
        from_pandas(edges, people, like=old, missing="mean")


EDGES = pd.DataFrame({"caller": ["a", "b"], "callee": ["b", "a"], "t": [5, 7], "kind": ["x", "y"]})
ROLES = ["src", "dst", "time", "-"]


def imported(edges, *options, out, code=0):
    edges.to_csv("edges.csv", index=False)
    assert main(["data", "import", "--edges", "edges.csv", "--out", out, *options]) == code
    return Dataset.open(out) if code == 0 else None


def test_options_that_decide_the_graph_are_repeated(capsys):
    """``--undirected``, and the meanings that ``--columns`` gave to names, whatever the order of the columns of the new table."""
    mine = imported(EDGES, "--columns", ",".join(ROLES), "--undirected", out="mine")
    assert "train link prediction" in capsys.readouterr().out
    new = imported(EDGES[["kind", "t", "callee", "caller"]], "--like", "mine", out="new")
    assert (new.graph.indices.tolist(), new.graph.times.tolist()) == (mine.graph.indices.tolist(), mine.graph.times.tolist())
    assert "predict, with a CHECKPOINT of the training on mine" in capsys.readouterr().out
    bare = imported(
        EDGES.rename(columns={"caller": "src", "callee": "dst", "t": "time"})[["src", "dst", "time"]], "--like", "mine", out="bare"
    )
    assert bare.graph.num_edges == 4
    imported(EDGES, "--like", "mine", "--columns", "src,dst,-,time", out="other", code=2)
    assert "time is 'x': times must be" in capsys.readouterr().err
    imported(EDGES, "--like", "mine", "--columns", "src,dst,-,-", out="other", code=2)
    assert "edges.csv must have the columns of mine: it lacks time; add what it lacks" in capsys.readouterr().err


USERS = {"users": "user,n\nann,1\nbob,3\n", "calls": "caller,callee\nann,bob\nbob,ann\n"}
OTHERS = {"users": "n,user\n5,cid\n6,dan\n", "calls": "callee,caller\ncid,dan\ndan,cid\n"}


def users_like(*options, first=USERS, second=OTHERS, code=0):
    """Import ``first`` with ``options``, and ``second`` with --like; return the second data set."""
    write(".", first)
    arguments = ["data", "import", "--edges", "calls.csv", "--features", "users.csv"]
    assert main([*arguments, *options, "--out", "mine"]) == 0
    write(".", second)
    assert main([*arguments, "--like", "mine", "--out", "new"]) == code
    return Dataset.open("new") if code == 0 else None


def test_the_header_and_the_column_of_ids_are_those_of_the_training():
    new = users_like("--columns", "src,dst", "--header")
    assert (new.x.tolist(), Path("new/ids.csv").read_text()) == ([[5], [6]], "node,id\n0,cid\n1,dan\n")
    assert new.graph.indices.tolist() == [1, 0]
    assert new.meta["options"]["header"] is True
    again = OTHERS | {"users": "n,user\n7,eve\n8,fay\n", "calls": "caller,callee\neve,fay\n"}
    write(".", again)
    assert main(["data", "import", "--edges", "calls.csv", "--features", "users.csv", "--like", "new", "--out", "third"]) == 0
    assert Dataset.open("third").graph.indices.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "first", "second", "message"),
    [
        (
            ("--header",),
            {},
            {"users": "cid,5\ndan,6\n"},
            "users.csv has no header, and mine has the columns n: columns are found by their names; write",
        ),
        (
            (),
            {"calls": "src,dst\nann,bob\n"},
            {"users": "1,5\n2,6\n"},
            "write the names into the first line, or give --header if it names them",
        ),
        (
            ("--header",),
            {},
            {"calls": "cid,dan\ndan,cid\n"},
            "calls.csv begins with cid,dan: it was read as column names, but cid is also the id",
        ),
        (
            ("--no-header",),
            {"users": "ann,1\nbob,3\n", "calls": "ann,bob\nbob,ann\n"},
            {"users": "user,n\ncid,5\n"},
            "callee is the id of no node, so these may be column names; if it has column names, give --header",
        ),
        (
            (),
            {"users": "ann,1\nbob,3\n", "calls": "ann,bob\nbob,ann\n"},
            {"users": "user,n\ncid,5\ndan,6\n"},
            "users.csv has a header, and mine had none (its columns are 1): both must be alike; if the first line is a row, give --no-header",
        ),
    ],
)
def test_a_missing_header_is_named(options, first, second, message, capsys):
    users_like(*options, first=USERS | first, second=OTHERS | second, code=2)
    assert message in capsys.readouterr().err


def test_all_labelled_nodes_may_be_tested(papers, capsys):
    """The output names the option, and then the command; other words for splits are refused."""
    labelled = NEW | {"nodes/paper": "venue,id,year,label\nVLDB,q1,2020,trees\nKDD,q2,2020,\nKDD,q3,2020,graphs\n"}
    write("new", labelled)
    with pytest.raises(InputError, match="to test all labelled nodes, read the tables with --split test"):
        converted("new", "--like", "papers", out="without").split("test")
    assert capsys.readouterr().out.splitlines()[-1] == "to test all labelled nodes, first make it again with --split test"
    data = converted("new", "--like", "papers", "--split", "test", out="newer")
    assert {name: nodes.tolist() for name, nodes in data.splits.items()} == {"test": [0, 2]}
    command = "hoptrain test --ckpt_path CHECKPOINT --data.dataset newer --data.splits null"
    assert capsys.readouterr().out.splitlines()[-1] == f"test, with the same: {command}"
    people, edges = PEOPLE.assign(n=1, label=["x", ""]), EDGES.drop(columns="kind")
    assert {name: nodes.tolist() for name, nodes in from_pandas(edges, people, split="test").splits.items()} == {"test": [0]}
    with pytest.raises(InputError, match=r"split is 'tests'.*random, test"):
        from_pandas(edges, people, split="tests")


PEOPLE = pd.DataFrame({"id": ["a", "b"], "n": [1.0, None], "town": ["Rome", "Oslo"], "label": ["x", "y"]})


def pandas_like(**options):
    """Read data frames like others that were read with ``missing`` mean, and otherwise by default."""
    edges = EDGES.drop(columns="kind")
    mine = from_pandas(edges, PEOPLE, missing="mean", name="mine")
    return from_pandas(**{"edges": edges, "nodes": PEOPLE, "like": mine} | options)


def convert_like(**changes):
    """Read new tables like those of ``TABLES``, with changes by table, and with options."""
    options = {name: changes.pop(name) for name in ("seed_type", "missing", "categories", "drop", "like") if name in changes}
    write("mine", TABLES)
    write("new", NEW, **changes)

    def read(folder, **own):
        files = {path.stem: path for path in sorted(Path(folder).glob("*/*.csv"))}
        nodes = {stem: path for stem, path in files.items() if "__" not in stem}
        return read_hetero_tables(
            nodes, {tuple(stem.split("__")): path for stem, path in files.items() if "__" in stem}, name=folder, **own
        )

    mine = read("mine", missing="mean", drop=["note"])
    return read("new", **{"like": mine} | options)


def other_table(name, text):
    write("new", {name: text})
    return convert_like()


MISTAKES = {
    "undirected": Mistake(lambda: pandas_like(undirected=True), value="--undirected", rule="contradicts mine no --undirected", remedy="leave out"),
    "missing": Mistake(lambda: pandas_like(missing="zero"), value="--missing zero", rule="contradicts mine --missing mean", remedy="leave out"),
    "missing cells that are errors": Mistake(lambda: convert_like(missing="error"), value="--missing error", rule="mine --missing mean", remedy="leave"),
    "categories": Mistake(lambda: pandas_like(categories=["N"]), value="--categories n", rule="mine column number", remedy="leave out"),
    "a column too many": Mistake(
        lambda: pandas_like(nodes=PEOPLE.assign(age=1, year=2)), value="age, year", rule="nodes columns mine also", remedy="--drop age,year"
    ),
    "a column too few": Mistake(lambda: pandas_like(drop=["town"]), value="town", rule="nodes columns mine lacks", remedy="add"),
    "no features": Mistake(lambda: pandas_like(nodes=None), value="n, town", rule="mine features nodes new data same", remedy="give table --features"),
    "a weight": Mistake(lambda: pandas_like(edges=EDGES.drop(columns="kind").assign(weight=1)), value="weight", rule="columns mine", remedy="--drop weight"),
    "an unknown class": Mistake(lambda: pandas_like(nodes=PEOPLE.assign(label="z")), value="'z'", rule="mine classes x, y", remedy="give leave empty"),
    "classes with names where there were none": Mistake(
        lambda: pandas_like(like=from_pandas(EDGES[["caller", "callee"]], name="bare"), edges=EDGES[["caller", "callee"]], nodes=PEOPLE[["id", "label"]]),
        value="'x'",
        rule="bare no names of classes",
        remedy="--drop label",
    ),
    "data that were not made from tables": Mistake(
        lambda: pandas_like(like=Dataset(edge_index=np.zeros((2, 1), int), x=np.eye(2), name="arrays")), value="arrays", rule="not tables", remedy="give"
    ),
    "the seed type": Mistake(lambda: convert_like(seed_type="author"), value="--seed-type author", rule="mine --seed-type paper", remedy="leave out"),
    "an unknown type": Mistake(
        lambda: other_table("nodes/venue", "id\nKDD\n"), value="venue", rule="venue.csv mine has author, paper new data same types", remedy="remove"
    ),
    "an unknown relation": Mistake(
        lambda: other_table("edges/paper__extends__paper", "src,dst\n"), value="paper:extends:paper", rule="mine same relations", remedy="rename"
    ),
    "no table of a relation": Mistake(
        lambda: convert_like(edges_in_paper__cites__paper=None), value="paper:cites:paper", rule="no table mine same", remedy="add no rows"
    ),
    "a type without its columns": Mistake(
        lambda: convert_like(nodes_in_author="id\ncid\n"), value="h, country", rule="author.csv columns lacks", remedy="add"
    ),
}  # fmt: skip


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)


def test_like_on_the_command_line_takes_data_of_the_same_kind(papers, capsys):
    imported(EDGES, "--like", "papers", out="mine", code=2)
    assert "--like papers is a HeteroDataset: the new data are a Dataset" in capsys.readouterr().err
    assert main(["data", "convert", "papers", "other", "--like", "papers"]) == 2
    assert "--like is papers, but papers is not a folder of tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [None, 7, "mean", {"missing": 7, "drop": 7, "columns": [1], "left": 7, "undirected": [], "id": 7, "header": 7}]
)
def test_damaged_options_are_ignored(options, papers):
    damaged = replace(papers, meta={**papers.meta, "options": options})
    data = convert_like(like=damaged, edges_in_author__writes__paper="src,dst,role,weight\ncid,q1,last,1\n")
    assert data.x["paper"].tolist() == [[2005, 1], [2020, 2]]
