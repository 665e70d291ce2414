import json

import numpy as np
import pytest

from hoptrain.benchmarks.cases import accuracy as samplers
from hoptrain.benchmarks.cases.accuracy import FULL
from hoptrain.benchmarks.cases.samplers import Training
from hoptrain.engine import Dataset, Graph
from hoptrain.trainers.cli import main

SCORES = {"NeighborSampler": 0.8, "ASGCNSampler": 0.81, "LadiesSampler": 0.78, "PinSAGESampler": 0.5}


@pytest.fixture
def made_up(monkeypatch):
    """Replace training by made-up accuracies that depend on the sampler's class and the random seed."""
    asked = []

    def score(name, algorithm, seed, root, quick):
        kind = algorithm.sampler.__name__
        asked.append((name, kind, seed))
        return SCORES.get(kind, 0.79) + 0.01 * seed

    monkeypatch.setattr(samplers, "fit_accuracy", score)
    return asked


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Return a data set under the name of a known one; its features and links reveal its two classes."""
    rng = np.random.default_rng(0)
    group = np.arange(120) % 2
    src, dst = rng.integers(0, 120, (2, 1500))
    src, dst = (ends[group[src] == group[dst]] for ends in (src, dst))
    x = np.eye(2, dtype=np.float32)[group] + rng.random((120, 2), np.float32)
    splits = {name: np.arange(first, last) for name, first, last in (("train", 0, 60), ("val", 60, 80), ("test", 80, 120))}
    graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 120)
    Dataset(name="pubmed", graph=graph, x=x, y=group, splits=splits, num_classes=2).save(tmp_path / "pubmed")
    model = {"arch": "sage", "hidden_channels": 8, "lr": 0.05}
    monkeypatch.setattr(samplers, "DATA", {"pubmed": Training(steps=8, batch_size=30, model=model, draws=30, budget=90, clusters=12)})
    return tmp_path


def run(root, *options):
    assert main(["bench", "accuracy", "--samplers", "--root", str(root), "--out", str(root / "out"), *options]) == 0
    return json.loads((root / "out" / "results.json").read_text())


def test_the_table(data, made_up):
    content = run(data, "--seeds", "2")
    rows = {row["sampler"]: row for row in content["records"]}
    assert len(rows) == 16
    assert rows[FULL]["test_accuracy"] == pytest.approx(0.815)
    assert (rows[FULL]["least"], rows[FULL]["most"], rows[FULL]["points"]) == (pytest.approx(0.81), pytest.approx(0.82), None)
    assert rows["AS-GCN"]["points"] == pytest.approx(1.0)
    assert rows["LADIES"]["points"] == pytest.approx(-2.0)
    assert content["summary"] == {
        "full_pubmed": pytest.approx(0.815),
        "min_points_pubmed": pytest.approx(-2.0),
    }  # PinSAGE makes no claim about accuracy
    assert {seed for _, _, seed in made_up} == {1, 2}
    table = (data / "out" / "samplers.md").read_text().splitlines()
    assert table[0] == "| sampler | pubmed | paper claims as much |"
    assert "| LADIES | 0.795 (-2.0) | yes |" in table
    assert "| PinSAGE | 0.515 (-30.0) | no |" in table


@pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run
def test_samplers_are_trained_with(data):
    """The benchmark trains with node-wise and subgraph samplers, and with AS-GCN's sampler, which has its own task."""
    content = run(data, "--seeds", "1", "--only", "VR-GCN", "AS-GCN", "SAINT walks")
    assert [row["sampler"] for row in content["records"]] == [FULL, "VR-GCN [2,2]", "AS-GCN", "SAINT walks"]
    assert min(row["test_accuracy"] for row in content["records"]) > 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samplers", "--data", "nothing"], "data set 'nothing' has no settings in this benchmark: choose among"),
        (["--data", "pubmed"], "--data, --only or --root without --samplers"),
    ],
)
def test_mistakes(options, message, tmp_path, capsys):
    assert main(["bench", "accuracy", "--out", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
