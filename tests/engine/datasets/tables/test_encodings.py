"""Columns of numbers, dates and categories with missing and wrong cells, from files and from data frames."""

import numpy as np
import pandas as pd
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain import from_pandas
from hoptrain.engine import Dataset
from hoptrain.engine.datasets.tables import rows
from hoptrain.trainers.cli import main

NODES = {
    "id": ["a", "b", "c", "d"],
    "price": ["1,457.01", "3", "NA", "-2"],
    "born": ["1970-01-03", "1970-01-02T12:00:00Z", "", "1969-12-31"],
    "town": ["Rome", "Oslo", "?", "Rome"],
    "class": ["x", "y", "", "x"],
    "train_mask": ["true", "0", "0", "0"],
    "valid_mask": ["0", "1", "0", ""],
    "test_mask": ["False", "0", "0", "1"],
}
EDGES = {"from": ["a", "b", "c", "d"], "to": ["b", "c", "d", "a"], "date": ["1970-01-01 00:00:05", "1970-01-02", "2021-03-04", "1969-12-31"],
         "amount": [1.5, 2, 3, 4]}  # fmt: skip
MESSAGES = [
    "nodes.csv, line 4: price is 'NA': each cell needs a value; fill missing cells with --missing mean (or zero), or leave the column out (--drop)",
    "nodes.csv, line 4: born is '': each cell needs a value",
    "nodes.csv, line 4: town is '?': each cell needs a value",
]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "BYTES", 16)  # so that everything comes in pieces
    pd.DataFrame(NODES).to_csv("nodes.csv", index=False)
    pd.DataFrame(EDGES).to_csv("edges.csv", index=False)


def imported(*options, out="mine", code=0):
    assert main(["data", "import", "--edges", "edges.csv", "--features", "nodes.csv", "--out", out, *map(str, options)]) == code
    return Dataset.open(out) if code == 0 else None


def check(data, price):
    np.testing.assert_allclose(data.x, [[1457.01, 2, 1], [3, 1.5, 0], [price, 2.5 / 3, 2], [-2, -1, 1]], rtol=1e-6)
    assert (data.y.tolist(), data.meta["classes"]) == ([0, 1, -1, 0], ["x", "y"])
    assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [0], "val": [1], "test": [3]}
    order = np.argsort(data.graph.ids_of(np.arange(4)))
    assert data.graph.times[order].tolist() == [5, 86400, 1614816000, -86400]
    assert data.edge_attr.ravel().tolist() == [1.5, 2, 3, 4]
    town = {"kind": "category", "categories": ["Oslo", "Rome", ""], "fill": 2.0, "missing": 1, "mean": pytest.approx(2 / 3)}
    assert data.meta["columns"]["x"]["town"] == town


def test_columns_with_missing_cells_are_listed_together_and_filled_on_request(capsys):
    imported(code=2)
    *messages, last = capsys.readouterr().err.splitlines()
    assert [line[: len(start)] for line, start in zip(messages, MESSAGES, strict=True)] == MESSAGES
    assert last.startswith("hoptrain: 1 of 4 rows of nodes.csv cannot be read")
    check(imported("--missing", "mean"), 1458.01 / 3)
    out = capsys.readouterr().out
    assert "missing cells of nodes filled: price (1 with 486.003)\n" in out
    assert "column town of nodes: 2 categories (Oslo, Rome); 1 missing cells became 2\n" in out
    assert "train: hoptrain fit --config own_data --data.dataset mine\n" in out
    assert main(["data", "info", "mine"]) == 0
    info = capsys.readouterr().out
    assert [line.split()[:4] for line in info.splitlines() if line.startswith("price")] == [["price", "-2", "486.003", "1457.01"]]
    assert max(map(len, info.splitlines())) <= 120


def test_new_data_become_the_same_numbers(capsys):
    imported("--missing", "mean")
    pd.DataFrame(NODES).iloc[1:3].assign(town=["Rome", ""])[["town", "id", "born", "price"]].to_csv("nodes.csv", index=False)
    pd.DataFrame(EDGES).iloc[1:2].to_csv("edges.csv", index=False)
    data = imported("--like", "mine", out="new")
    np.testing.assert_allclose(data.x, [[3, 1.5, 1], [1458.01 / 3, 2.5 / 3, 2]], rtol=1e-6)
    pd.DataFrame(NODES).iloc[1:3].assign(town=["Bern", ""]).to_csv("nodes.csv", index=False)
    imported("--like", "mine", out="other", code=2)
    assert (
        "town is 'Bern': mine has no such category; fix it, or count such cells as missing with --missing mean" in capsys.readouterr().err
    )


def test_missing_cells_of_new_data_get_the_mean_of_the_training_data(capsys):
    """Columns without missing cells in the training data have a mean, too, and new tables change no mean."""
    pd.DataFrame({"id": list("abcd"), "n": [1, 2, 3, 4], "town": ["Rome", "Oslo", "Rome", "Rome"]}).to_csv("nodes.csv", index=False)
    imported()
    pd.DataFrame({"id": list("abcd"), "n": ["8", "", "4", "6"], "town": ["Oslo", "Bern", "", "Rome"]}).to_csv("nodes.csv", index=False)
    imported("--like", "mine", out="new", code=2)
    told = capsys.readouterr().err
    assert (
        "line 3 and 1 more of 4 rows: n is '' (also town): the column of mine has a value in each row; fill missing cells with --missing mean"
        in told
    )
    assert "line 3: town is 'Bern': mine has no such category; fix it, or count such cells as missing with --missing mean" in told
    assert imported("--like", "mine", "--missing", "mean", out="new").x.tolist() == [[8, 0], [2.5, 0.75], [4, 0.75], [6, 1]]
    assert "column town of nodes: 2 categories (Oslo, Rome); 2 missing cells became 0.75\n" in capsys.readouterr().out
    assert imported("--like", "mine", "--missing", "zero", out="zeros").x.tolist() == [[8, 0], [0, 0.75], [4, 0.75], [6, 1]]
    pd.DataFrame({"id": list("abcd"), "n": ["8", "", "4", "6"], "town": ["Oslo", "Oslo", "", "Rome"]}).to_csv("nodes.csv", index=False)
    assert imported("--like", "new", out="newer").x[1:3].tolist() == [[2.5, 0], [4, 0.75]]


def test_the_mean_is_that_of_the_rows_that_are_kept():
    pd.DataFrame({"id": list("abcda"), "n": ["1", "2", "", "400", "600"], "m": ["1", "2", "3", "x", "5"]}).to_csv("nodes.csv", index=False)
    rows = {"src": ["a", "b", "z", "c"], "dst": ["b", "c", "a", "a"], "weight": ["1", "", "50", "2"], "n": ["4", "2", "70", ""]}
    pd.DataFrame(rows).to_csv("edges.csv", index=False)
    data = imported("--missing", "mean", "--skip-bad-rows", 0.5)
    assert data.x.tolist() == [[1, 1], [2, 2], [1.5, 3]]
    assert sorted(data.graph.weights.tolist()) == [1, 1.5, 2]
    assert data.edge_attr.ravel().tolist() == [4, 2, 3]
    assert {name: own["mean"] for name, own in data.meta["columns"]["x"].items()} == {"n": 1.5, "m": 2}


def test_data_frames_are_the_same():
    people = pd.DataFrame(NODES)
    people["price"] = [1457.01, 3, None, -2]
    people["born"] = pd.to_datetime(people["born"], format="ISO8601", utc=True, errors="coerce")
    people["town"] = people["town"].replace("?", None).astype("category")
    knows = pd.DataFrame(EDGES)
    knows["date"] = pd.to_datetime(knows["date"], format="ISO8601")
    check(from_pandas(knows, people, missing="mean"), 1458.01 / 3)
    whole = from_pandas(pd.DataFrame({"a": [3, 4], "b": [4, 3]}), pd.DataFrame({"id": [4, 3], "label": [1.0, None]}), name="whole")
    assert (whole.graph.indices.tolist(), whole.y.tolist()) == ([1, 0], [1, -1])


def test_a_column_of_numbers_is_a_category_if_named_so():
    pd.DataFrame({"id": list("abcd"), "zip": ["007", "7", "10", "7"], "n": [1, 2, 3, 4]}).to_csv("nodes.csv", index=False)
    data = imported("--categories", "ZIP")
    assert (data.x.tolist(), data.meta["columns"]["x"]["zip"]["categories"]) == ([[0, 1], [2, 2], [1, 3], [2, 4]], ["007", "10", "7"])


def nodes_with(**columns):
    """Read nodes with a column."""
    number = len(next(iter(columns.values())))
    return from_pandas(pd.DataFrame({"src": [0], "dst": [1]}), pd.DataFrame({"id": range(number), **columns}))


MISTAKES = {
    "names": Mistake(lambda: nodes_with(name=[f"n{i}" for i in range(30)]), value="'n0'", rule="30 names not categories 29 more", remedy="leave --drop"),
    "dates of another notation": Mistake(lambda: nodes_with(day=["03/04/2021", "4.3.2021"]), value="03/04/2021", rule="nodes, row 1", remedy="convert"),
    "a number among dates": Mistake(lambda: nodes_with(day=["2021-03-04", "2021-03-05", "7"]), value="day is '7'", rule="nodes, row 3 dates", remedy="fix"),
    "a text among targets": Mistake(lambda: nodes_with(label=["0.5", "x", "2", "3"]), value="label is 'x'", rule="row 2 finite numbers", remedy="fix"),
    "no data frame": Mistake(lambda: from_pandas([[0, 1]]), value="list", rule="edges DataFrame", remedy="convert"),
    "a missing weight": Mistake(
        lambda: from_pandas(pd.DataFrame({"src": [0, 1], "dst": [1, 0], "weight": [1.0, None]})), value="weight", rule="row 2 value", remedy="fill"
    ),
}  # fmt: skip


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
