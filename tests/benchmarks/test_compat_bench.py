"""``hoptrain bench compat`` runs with loaders that stand in for those of PyG and DGL."""

import json

import pytest
from cases.pyg_original import use_original_loader

from hoptrain.benchmarks.cases.hetero import synthetic_mag
from hoptrain.engine import HeteroDataset
from hoptrain.trainers.cli import main


@pytest.fixture
def folder(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    return tmp_path / "data"


def run(what, out, *options):
    command = ["bench", "compat", "--quick", "--rounds", "1", "--graphs", *what, "--fanouts", "3,2", "--batch-size", "16"]
    assert main([*command, "--out", str(out), *options]) == 0
    return json.loads((out / "results.json").read_text())


@pytest.mark.parametrize("which", [pytest.param("folder", marks=pytest.mark.promise), "hetero folder", "typed:mag"])
def test_the_original_line_and_the_changed_one(folder, tmp_path, monkeypatch, which):
    use_original_loader(monkeypatch)
    if which == "hetero folder":  # its data have a node type without features
        data = synthetic_mag(0.001)
        x = {kind: rows for kind, rows in data.x.items() if kind != "field"}
        folder = tmp_path / "mixed"
        HeteroDataset(name="mixed", graph=data.graph, seed_type="paper", x=x, y=data.y, splits=dict(data.splits)).save(folder)
    what = [which, "--scale", "0.001"] if which == "typed:mag" else [str(folder)]
    content = run(what, tmp_path / "out", "--baselines", "pyg", "--workers", "0")
    rows = [(row["what"], row["system"], row["ratio"] is None) for row in content["records"]]
    assert rows == [("loader", "PyG", False), ("script", "PyG", False), ("loader", "hoptrain", True), ("script", "hoptrain", True)]
    assert all(row["ms_batch"] > 0 for row in content["records"])
    ratios = {row["what"]: row["ratio"] for row in content["records"] if row["system"] == "PyG"}
    assert content["summary"] == {"min_ratio_pyg": ratios["loader"], "min_script_ratio_pyg": ratios["script"]}


def test_a_library_that_is_not_installed_is_left_out(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch_geometric.typing.WITH_PYG_LIB", False)
    monkeypatch.setattr("torch_geometric.typing.WITH_TORCH_SPARSE", False)
    assert run([str(folder)], tmp_path / "out", "--baselines", "pyg")["records"] == []
    assert "skipped pyg: not installed: PyG needs pyg-lib or torch-sparse" in capsys.readouterr().out
