"""``hoptrain bench trainings`` runs its scripts on a small graph and computes the right figures from their times."""

import csv
import json
from argparse import Namespace
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from cases.pyg_original import use_original_loader

from hoptrain.benchmarks import trainings
from hoptrain.benchmarks.common import grid
from hoptrain.benchmarks.common.trial import Trial
from hoptrain.benchmarks.trainings import bound, program, report
from hoptrain.benchmarks.trainings.bound import Bound, Phase, Work, count_work, estimate
from hoptrain.benchmarks.trainings.cell import SYSTEMS, Cell
from hoptrain.benchmarks.trainings.table import place_of, rows_of, summarize
from hoptrain.engine import Dataset
from hoptrain.samplers import Block
from hoptrain.trainers.cli import main

SMALL = Cell(system="fit", hidden=8, fanouts=(4, 3), batch_size=16, steps=2, epochs=1, test_nodes=20)


@pytest.fixture
def folder(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    return tmp_path / "data"


# The scripts.


def trained(cell, folder, monkeypatch):
    use_original_loader(monkeypatch)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    found = program.train(cell, folder)
    assert found["steps"] == 2
    assert 0 < found["step_s"] < found["first_epoch_s"] + 60
    assert found["cpu_s"] > 0
    assert 0 <= found["accuracy"] <= 1
    assert found["peak_rss"] >= found["pss"] > found["shared"]
    return found


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run
@pytest.mark.parametrize("system", ["fit", "pyg-trim"])
def test_a_script_trains(system, folder, monkeypatch):
    trained(replace(SMALL, system=system), folder, monkeypatch)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arch", ["sage", "gcn", "gat", "gin"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_script_trains(system, arch, folder, monkeypatch):
    cell = replace(SMALL, system=system, arch=arch)
    reason = program.missing(cell) if system not in ("pyg", "pyg-trim") else None
    if reason is not None:
        pytest.skip(reason)
    trained(cell, folder, monkeypatch)


def test_all_systems_have_the_same_seeds(folder):
    data = Dataset.open(folder)
    one, other = (program.with_seeds(data, replace(SMALL, system=system, seed=seed)) for system, seed in (("fit", 0), ("pyg", 5)))
    for split, number in (("train", 32), ("test", 20)):
        assert one.split(split).tolist() == other.split(split).tolist()
        assert len(set(one.split(split)) & set(data.split(split))) == min(number, len(data.split(split)))


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    assert program.missing(replace(SMALL, system="dgl-int32")) == "not installed: dgl"
    assert program.missing(replace(SMALL, system="pyg")) == "not installed: pyg_lib or torch_sparse"
    assert program.missing(SMALL) is None
    monkeypatch.setattr(program, "find_spec", lambda name: True)
    monkeypatch.setattr(program, "import_module", lambda name: exec("raise ImportError('no layers')"))
    assert program.missing(replace(SMALL, system="hoptrain.pyg.nn")) == "not available: no layers"
    assert program.missing(replace(SMALL, system="pyg")) is None


# The lower bound of a step.


def sizes(num_dst, num_src, num_edges):
    return Block(indptr=np.zeros(num_dst + 1), indices=np.zeros(num_edges), edge_ids=None, num_src=num_src)


def test_the_work_of_a_step():
    blocks, widths = [sizes(3, 5, 7), sizes(2, 3, 4)], [(2, 10), (10, 1)]  # only the second layer multiplies before it sums
    products = 2 * 2 * (3 + 3) * 2 * 10 + 3 * 2 * (3 + 2) * 10 * 1
    streams = 3 * 2 + (2 + 3) * 1 + 5 * 3 * 10
    rows = 2 * 5 * 2 + 7 * 2 + 2 * 4 * 1
    assert count_work(blocks, widths) == Work(products, 4 * streams, 4 * rows)
    first = count_work([sizes(3, 5, 7)], [(10, 1)])  # the first layer's weights need the gradients of its narrow rows
    assert first == Work(2 * 2 * (3 + 5) * 10, 4 * (3 + 5), 4 * (2 * 5 * 10 + 2 * 7))


def test_a_bound_is_work_over_rates(folder, monkeypatch):
    monkeypatch.setattr(bound, "COPY_BYTES", 1 << 16)
    threads = torch.get_num_threads()
    found = estimate(SMALL, folder)
    assert found.ms == pytest.approx(found.products.ms + found.streams.ms + found.rows.ms)
    assert min(number for phase in found for number in phase) > 0
    assert torch.get_num_threads() == threads


# The whole benchmark.


@pytest.fixture
def _one_process(monkeypatch):
    """Run all cells except the first in this process, since each process takes seconds to import torch."""
    start, said, calls = grid.run_trial, [], []

    def run(command, limit, log):
        calls.append(command)
        if len(calls) == 1:
            return start(command, limit, log)
        said.clear()
        program.run(command[-2:])
        log.touch()
        return Trial(ended=True, seconds=1.0, code=0, text="\n".join(said), where="", orphans=0, shm_files=0)

    monkeypatch.setattr(grid, "run_trial", run)
    monkeypatch.setattr(program, "say", said.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)


@pytest.mark.long
@pytest.mark.usefixtures("_one_process")
@pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run
def test_the_quick_form(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(trainings, "allowed_cores", lambda: 1)  # one number of threads for each number of workers
    monkeypatch.setattr(bound, "COPY_BYTES", 1 << 16)
    out = tmp_path / "out"
    command = ["bench", "trainings", "--quick", "--graphs", str(folder), "--systems", "fit", "hoptrain.pyg", "dgl-int64"]
    command += ["--fanouts", "4", "3", "--batch-size", "16", "--steps", "2", "--workers", "0", "1", "--rounds", "2", "--out", str(out)]
    assert main(command) == 0
    content = json.loads((out / "results.json").read_text())
    rows = {row["system"]: row for row in content["records"]}
    assert [rows[name]["rounds"] for name in ("hoptrain fit", "hoptrain.pyg")] == [2, 2]
    assert content["summary"]["bad_rows"] == 0
    assert rows["hoptrain fit"]["bound_x"] > 0
    assert rows["hoptrain.pyg"]["bound_x"] is None
    assert content["load"].keys() == {"busy_cores", "load_average"}
    with (out / "results.csv").open() as file:
        assert [row["system"] for row in csv.DictReader(file)] == list(rows)
    assert (out / "sage-64.svg").read_bytes().startswith(b"<?xml")
    assert "hoptrain fit" in (out / "report.html").read_text()
    lines = (out / "cells.jsonl").read_text()
    assert main(command) == 0  # all cells have been run
    assert (out / "cells.jsonl").read_text() == lines


# Settings.


def options(**given):
    names = ("graphs", "scale", "root", "fanouts", "arch", "hidden", "workers", "features", "batch_size", "epochs", "steps")
    plain = dict.fromkeys(names) | {"systems": list(SYSTEMS), "quick": False, "device": "cpu"}
    return Namespace(**plain | given)


def test_settings_to_try(monkeypatch):
    monkeypatch.setattr(trainings, "allowed_cores", lambda: 4)
    assert trainings.settings(None, quick=False) == [(0, 4), (1, 3), (1, 4), (2, 2), (2, 4), (4, 1), (4, 4)]
    assert trainings.settings(None, quick=True) == [(0, 4), (2, 2)]
    assert trainings.settings([0], quick=False) == [(0, 4)]


def test_what_is_trained(monkeypatch):
    monkeypatch.setattr(trainings, "allowed_cores", lambda: 2)
    cells = trainings.cells_of(options())
    assert len(cells) == len(set(cells)) == 3 * 4 * 2 * 5 * len(SYSTEMS)
    assert {(cell.dataset, len(cell.fanouts)) for cell in cells} == {
        ("synthetic:products", 3),
        ("synthetic:reddit", 2),
        ("synthetic:arxiv", 3),
    }
    assert {(cell.epochs, cell.steps) for cell in cells} == {(10, 8)}
    quick = trainings.cells_of(options(quick=True, steps=4))
    assert {(cell.epochs, cell.steps) for cell in quick} == {(2, 4)}
    assert {(cell.dataset, cell.arch, cell.hidden, cell.scale) for cell in quick} == {("synthetic:products", "sage", 64, 0.05)}
    gpu = trainings.cells_of(options(quick=True, device="cuda", workers=[0]))
    assert [cell.features for cell in gpu[:: len(SYSTEMS)]] == ["device", "pinned"]


# Tables.


def line(system, step_ms, number=0, *, accuracy=0.8, outcome="completed", **changes):
    cell = asdict(Cell(system=system, **{"dataset": "synthetic:arxiv", "workers": 0, "threads": 2, **changes}))
    found = {"step_s": step_ms / 1e3, "cpu_s": step_ms / 500, "first_epoch_s": 1.0, "steps": 4, "accuracy": accuracy, "device": "cpu"}
    found |= {"peak_rss": 3e9, "pss": 2e9, "shared": 1e9, "gpu": 0}
    facts = {"machine": {"cpu": "c", "cores": 2, "memory": 8e9, "python": "3"}, "versions": {"torch": "2"}, "commit": "abc", "date": "2026"}
    facts |= {"load": {"busy_cores": 0.25, "load_average": 0.5}, "log": None, "why": None if outcome == "completed" else "not installed"}
    base = {"key": f"{system}{cell['workers']}", "round": number, "cell": cell, "outcome": outcome} | facts
    return base | {"found": found if outcome == "completed" else None}


@pytest.fixture
def lines():
    """Return result lines: hoptrain is faster with two workers, PyG without workers, and each faster setting has two more rounds."""
    first = [line("fit", 30), line("fit", 20, workers=2), line("pyg", 50), line("pyg", 90, workers=2)]
    absent = line("dgl-int32", 1, outcome="skipped")
    more = [line("pyg", ms, n, accuracy=0.75) for n, ms in ((1, 50), (2, 40))]
    return [*first, absent, *(line("fit", 10 * n, n, workers=2) for n in (1, 2)), *more]


def test_each_system_at_its_best_setting(lines):
    tried = lines[:5]
    cells = [replace(SMALL, system=one["cell"]["system"], workers=one["cell"]["workers"], epochs=30) for one in tried]
    assert trainings.best_settings(tried, cells) == [cells[1], cells[2]]
    rows = {row["system"]: row for row in rows_of(lines)}
    assert list(rows) == ["hoptrain fit", "PyG", "DGL, int32"]
    own, other, absent = rows.values()
    assert (own["workers"], own["rounds"], own["step_ms"], own["cpu_ms"]) == (2, 3, 20, 40)
    assert own["spread"] == pytest.approx(0.5)
    assert own["faster"] == 2.5  # median of 2.5, 5 and 2
    longer = line("fit", 25, epochs=30)
    assert [row["step_ms"] for row in rows_of([*lines[:2], longer])] == [
        25
    ]  # of two settings with equally many rounds, the one with more epochs
    assert other["faster"] == 1
    assert (absent["outcome"], absent["step_ms"], absent["why"]) == ("skipped", None, "not installed")


def test_accuracies_are_compared(lines):
    rows = rows_of(lines)
    assert [row["is_equal"] for row in rows] == [True, False, None]
    apart = rows_of([line("fit", 1), line("dgl-int32", 1, accuracy=0.5)])
    assert [row["is_equal"] for row in apart] == [True, True]  # DGL starts with other weights, so its accuracy may differ
    summary = summarize(rows)
    assert summary.pop("accuracy_gap") == pytest.approx(5)
    assert summary == {"min_faster": 2.5, "min_cpu_ratio": 2.5, "unequal": 1, "bad_rows": 0, "absent": 1}


@pytest.mark.promise
def test_report(lines, tmp_path):
    (tmp_path / "logs").mkdir()
    skipped = [one | {"log": "logs/it.log"} if one["outcome"] == "skipped" else one for one in lines]
    bound = Bound(Phase(8, 100), Phase(1.5, 9), Phase(0.5, 7))
    bounds = {place_of(skipped[0]["cell"]): bound}
    rows = rows_of(skipped, bounds)
    assert [row["bound_x"] for row in rows] == [2, None, None]
    assert rows_of([line("fit", 1, outcome="failed")], bounds)[0]["bound_x"] is None
    report.write(tmp_path, skipped, rows, bounds)
    page = (tmp_path / "report.md").read_text()
    assert "| hoptrain fit | 20.0 | 50 | 2.50 | 40.0 | 2.00 | 80.00 | 2 | 2 | 3 |" in page
    assert "Lower bound of a step: 10.0 ms (products 8.0 ms at 100.0 GFLOP/s, 1.5 ms of streamed memory at 9.0 GB/s, 0.5 ms of" in page
    assert "rows at 7.0 GB/s); `hoptrain fit` takes 2.0 times as long." in page
    assert "| sage-256, synthetic:arxiv at scale 0.2 | PyG | 50.0 | 90.0 |" in page
    assert "**Accuracies differ.** More than 3 points below" in page
    assert "other programs kept 0.2 to 0.2 of its cores busy; the largest load average was 0.5" in page
    assert "system dgl-int32 arch sage hidden 256 dataset synthetic:arxiv" in page
    assert max(len(row) for row in page.splitlines() if row.startswith("|")) <= 120
    assert report.alt_text(rows_of(lines)) == "Milliseconds a step. synthetic:arxiv at scale 0.2: hoptrain 20, PyG 50"


def test_picture(lines):
    figure = report.draw(rows_of([*lines, *(line("pyg", 7, n, dataset="synthetic:reddit") for n in range(3))]))
    first, second = figure.axes
    assert [bar.get_width() for bar in first.patches] == [20, 50]
    assert [bar.get_width() for bar in second.patches] == [7]
    assert [label.get_text() for label in first.get_yticklabels()] == ["hoptrain fit", "PyG"]
    assert [text.get_text() for text in first.texts] == [" 20 ms, 2 workers", " 50 ms, 0 workers"]


MISTAKES = {
    "an unknown system": Mistake(lambda: replace(SMALL, system="torch"), value="'torch'", rule="system", remedy="fit pyg dgl-int64"),
    "no steps": Mistake(lambda: replace(SMALL, steps=0), value="0 steps", rule="all least 1", remedy="larger"),
    "heads that do not share the width": Mistake(
        lambda: replace(SMALL, hidden=6), value="hidden is 6", rule="heads gat divided", remedy="multiple of 4"
    ),
    "features elsewhere": Mistake(lambda: replace(SMALL, features="device"), value="'device'", rule="host on cpu", remedy="give one"),
}


@each_of(MISTAKES)
def test_cells_that_cannot_be(mistake, request):
    mistake.check(request)


def test_no_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "trainings", "--quick", "--device", "cuda", "--out", str(tmp_path)]) == 2
    assert "--device cuda: torch finds no GPU" in capsys.readouterr().err
