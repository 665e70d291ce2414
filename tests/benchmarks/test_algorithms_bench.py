import json

import numpy as np
import pytest

from hoptrain.benchmarks import algorithms
from hoptrain.benchmarks.algorithms import BASELINES
from hoptrain.benchmarks.baselines.hoptrain import open_algorithms
from hoptrain.benchmarks.baselines.systems import System, num_steps
from hoptrain.benchmarks.cases.samplers import ALGORITHMS, TIMED
from hoptrain.benchmarks.common import options, pictures
from hoptrain.engine import Graph, InputError
from hoptrain.trainers.cli import main


@pytest.fixture
def folder(dataset, tmp_path):
    path = tmp_path / "data"
    dataset.save(path)
    return str(path)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(algorithms, "SECONDS", {False: 0.001, True: 0.001})


def slow_baseline(graph):
    """Return a slow baseline: it samples each batch twice with hoptrain's sampler."""

    def systems(name, workload, threads):
        if name == "walk":
            return
        for own in open_algorithms(graph)(name, workload, threads):

            def sample(seeds, first, own=own):
                return (own.sample(seeds, first) + own.sample(seeds, first)) // 2

            yield System(family="DGL", name="fake", threads=own.threads, sample=sample, note="twice")

    return systems


def partial_baseline(graph):
    """Return a baseline whose results lack edges."""

    def systems(name, workload, threads):
        for own in open_algorithms(graph)(name, workload, threads):
            yield System(family="PyG", name="lacking", threads=own.threads, sample=lambda *seeds, own=own: own.sample(*seeds) // 2)

    return systems


def absent(graph):
    raise InputError("not installed")


def run(folder, out, *options):
    assert main(["bench", "algorithms", "--quick", "--graphs", folder, "--rounds", "2", "--out", str(out), *options]) == 0
    return json.loads((out / "results.json").read_text())


def test_a_whole_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(algorithms, "BASELINES", {"dgl": slow_baseline, "pyg": absent, "papers": absent})
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    names = ["neighbor", "labor0", "walk", "ladies", "saint_node"]
    content = run(folder, tmp_path / "out", "--threads", "1", "--baselines", "dgl", "pyg", "--algorithms", *names)
    rows = {(row["algorithm"], row["system"]): row for row in content["records"]}
    assert rows.keys() == {(name, "hoptrain") for name in names} | {(name, "fake") for name in names if name != "walk"}
    for (name, system), row in rows.items():
        assert (row["graph"], row["threads"], row["unit"]) == ("random", 1, TIMED[name].unit)
        assert (row["ratio"] is None, row["note"]) == ((True, None) if system == "hoptrain" else (False, "twice"))
        assert row["ms_batch"] > 0
    assert rows["walk", "hoptrain"]["edges_batch"] > 40
    assert rows["neighbor", "hoptrain"]["edges_batch"] == rows["neighbor", "fake"]["edges_batch"]
    summary = content["summary"]
    assert summary.keys() == {f"min_ratio_{name}" for name in names if name != "walk"} | {"min_ratio", "min_ratio_dgl"}
    assert summary["min_ratio"] == summary["min_ratio_dgl"] == min(row["ratio"] for row in rows.values() if row["ratio"] is not None)
    table = (tmp_path / "out" / "algorithms.md").read_text().splitlines()
    assert len(table) == 2 + len(rows)
    assert sum("twice" in line for line in table) == len(names) - 1
    assert "skipped pyg: not installed" in capsys.readouterr().out


def test_two_threads_take_the_fastest_baseline(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(algorithms, "BASELINES", {"dgl": slow_baseline, "pyg": partial_baseline})
    monkeypatch.setattr(options, "allowed_cores", lambda: 2)
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    content = run(folder, tmp_path / "out", "--threads", "2", "1", "--baselines", "dgl", "pyg", "--algorithms", "shadow")
    assert [(row["system"], row["threads"]) for row in content["records"]] == [("hoptrain", 1), ("hoptrain", 2), ("fake", 1), ("fake", 2)]
    assert "left out lacking, 2: " in capsys.readouterr().out
    assert content["summary"]["min_ratio_shadow"] <= min(row["ratio"] for row in content["records"] if row["ratio"] is not None)


def test_threads_beyond_the_cores(folder, tmp_path, capsys):
    assert main(["bench", "algorithms", "--graphs", folder, "--out", str(tmp_path), "--threads", "1000"]) == 2
    assert "threads are [1000]: they must be in [1, " in capsys.readouterr().err


def test_seeds_of_a_task_are_those_of_the_schedule(graph):
    workload = ALGORITHMS["neighbor"].workload(graph, np.arange(30), quick=True)
    batches = workload.batches(0, 2)
    assert sorted(np.concatenate(batches)[:30]) == list(range(30))
    subgraphs = ALGORITHMS["saint_walk"].workload(graph, np.arange(30), quick=True)
    assert [len(batch) for batch in subgraphs.batches(0, 3)] == [1, 1, 1]


@pytest.mark.parametrize("baseline", list(BASELINES))
def test_baselines_do_the_same_work(baseline):
    """Every installed baseline runs once and samples as many edges as hoptrain."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 3000, (2, 40000))
    graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 3000, weights=rng.random(80000, np.float32) + np.float32(0.1))
    try:
        systems = BASELINES[baseline](graph)
    except InputError as error:
        pytest.skip(str(error))
    for name in ("fastgcn", "ladies") if baseline == "papers" else TIMED:
        try:
            workload = ALGORITHMS[name].workload(graph, np.arange(3000), quick=True)
        except InputError:
            continue  # pymetis is not installed
        seeds = workload.batches(0, 2)
        (own,) = open_algorithms(graph)(name, workload, [1])
        expected = own.sample(seeds, 0)
        for system in systems(name, workload, [1]):
            found = system.sample(seeds, 0)
            if TIMED[name].unit != "batch" and not system.note:
                assert found == pytest.approx(expected, rel=0.1), name
            assert found > 0


def test_steps_of_walks():
    assert num_steps(type("Walks", (), {"numel": lambda self: 12, "__len__": lambda self: 3})()) == 9


def test_picture():
    own = {"graph": "g", "algorithm": "walk", "system": "hoptrain", "threads": 1, "ratio": None, "counts": True}
    figure = algorithms.picture([own, own | {"system": "DGL", "ratio": 3.0}, own | {"system": "PyG", "threads": 2, "ratio": 1.5}])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["walk"]
    assert [float(line.get_xdata()[0]) for line in axes.lines[:2]] == [3.0, 1.5]
