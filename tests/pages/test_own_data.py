"""The files, commands and examples of the page on your own data work, one after another."""

import re
import shlex
from pathlib import Path

import pytest

from hoptrain.engine import Dataset, HeteroDataset
from hoptrain.trainers.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "your_own_data.md").read_text()
SHOWN = re.findall(r"^ {4,}(\S.*: .*; .*|'ogbn.*)$", PAGE, re.MULTILINE)


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r'```text title="(.*?)"\n(.*?)```', PAGE, re.DOTALL):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


def commands(*names):
    """Return the arguments of the page's commands with these names, such as ``data``."""
    lines = [shlex.split(line) for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    return [line[1:] for line in lines if line[1] in names]


def test_the_commands_import_its_files(tmp_path):
    lines = commands("data")
    assert [main(line) for line in lines] == [0] * len(lines)
    papers, web, calls = (Dataset.open(name) for name in ("papers", "web", "calls"))
    assert (papers.graph.num_edges, papers.num_features, papers.num_classes, papers.y.tolist()) == (4, 2, 2, [0, 1, 0, -1])
    assert (web.graph.num_nodes, web.graph.num_edges) == (3, 3)
    assert (calls.graph.num_edges, sorted(set(calls.graph.times.tolist()))) == (6, [1700000000, 1700000060, 1700000120])
    assert (tmp_path / "calls" / "ids.csv").read_text().splitlines() == ["node,id", "0,007", "1,12", "2,15"]


@pytest.mark.promise
def test_a_model_of_several_types_predicts_on_new_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    lines = commands("data", "fit", "predict")
    for line in (line for line in lines if "library" in " ".join(line) or line[0] == "predict"):
        quick = ["--data.num_workers", "0", "--trainer.max_epochs", "1"] if line[0] == "fit" else []
        assert main([*line, *quick]) == 0
    new, graph = HeteroDataset.open("new_graph"), HeteroDataset.open("library_graph")
    assert new.x["author"].tolist() == [[5, pytest.approx(2 / 3)], [4, 0]]
    assert new.x["paper"].tolist() == [[2023, 1], [2020, 0]]
    assert (graph.y.tolist(), graph.num_classes) == ([0, 1, 0, 1, 0, 1], 2)
    rows = (tmp_path / "new.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["id", "q1", "q2"]
    assert {row.split(",")[1] for row in rows[1:]} <= {"graphs", "trees"}


def test_the_bad_row_that_it_shows(tmp_path, capsys):
    text = (tmp_path / "cites.csv").read_text()
    (tmp_path / "cites.csv").write_text(text.replace("carl20,bert19", "carl20,bert91"))
    assert main(["data", "import", "--edges", "cites.csv", "--features", "papers.csv", "--out", "papers"]) == 2
    assert SHOWN[0] in capsys.readouterr().err.splitlines()


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_the_examples_run(capsys, tmp_path):
    assert main(next(line for line in commands("data") if "library_graph" in line)) == 0
    names = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, names)
    assert SHOWN[1] in capsys.readouterr().out.splitlines()
    years = names["task"].model.standardize["paper"].mean[0]
    assert years == (2019 + 2020) / 2, "the mean of the training nodes"
    assert {row.split(",")[1] for row in (tmp_path / "own.csv").read_text().splitlines()[1:]} <= {"graphs", "trees"}
    assert names["same"].y.tolist() == [0, 1, 0, -1]
