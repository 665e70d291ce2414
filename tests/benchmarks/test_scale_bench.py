import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of

from hoptrain.benchmarks import report, scale
from hoptrain.benchmarks.common import grid, processes
from hoptrain.benchmarks.common.grid import read_grid, with_tuples
from hoptrain.benchmarks.common.trial import Trial
from hoptrain.benchmarks.study import plots, what_if
from hoptrain.benchmarks.study.cell import PHASES, Cell, Place
from hoptrain.benchmarks.study.peer_feeds import FEEDS, nested_blocks
from hoptrain.benchmarks.study.run import merge
from hoptrain.benchmarks.study.table import rows_of, summarize
from hoptrain.benchmarks.study.train import seeds_of, train
from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.cli import main
from hoptrain.trainers.models import GNN

CONFIGS = Path(__file__).parents[2] / "configs" / "bench"


# The whole study.


@pytest.fixture
def _one_rank_here(monkeypatch):
    """Train cells of one rank in this process, since each process takes seconds to import torch."""
    start = grid.run_trial

    def run(command, limit, log):
        *_, cell, folder = command
        cell = Cell(**with_tuples(json.loads(cell)))
        if cell.ranks > 1:
            return start(command, limit, log)
        log.touch()
        found = merge([train(cell, Path(folder), log.parent, 0)])
        return Trial(ended=True, seconds=1.0, code=0, text=f"{grid.FOUND}{json.dumps(found)}", where="", orphans=0, shm_files=0)

    monkeypatch.setattr(grid, "run_trial", run)
    monkeypatch.setattr("hoptrain.benchmarks.study.train.keep_freed_memory", lambda: None)  # it would hold for all later tests


@pytest.mark.usefixtures("_one_rank_here")
def test_hoptrain_alone(dataset, tmp_path, capsys):
    dataset.save(tmp_path / "data")
    config = tmp_path / "grid.yaml"
    config.write_text(
        f"rounds: 1\nlimit: 90\nall: {{dataset: {tmp_path / 'data'}, fanouts: [4, 3], hidden: 8, batch_size: 16, epochs: 1, workers: 1}}\n"
        "grids:\n  - {system: [hoptrain], ranks: [1, 2]}\n"
    )
    arguments = ["bench", "scale", "--config", str(config), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["summary"] == {"cells": 2, "hung_cells": 0, "hoptrain_bad_cells": 0}
    one, two = content["records"]
    train = len(dataset.split("train"))
    assert (one["ranks"], two["ranks"], one["outcome"], two["outcome"]) == (1, 2, "completed", "completed")
    assert one["seeds"] == two["seeds"] == train
    assert [int(seeds) for seeds in two["seeds_by_rank"].split(",")] == [-(-train // 2), train // 2]
    for row in (one, two):
        assert sum(row[f"{phase}_s"] for phase in PHASES) == pytest.approx(row["epoch_s"])
        assert row["edges"] > row["seeds"]
        assert 0 < row["sample_s"] < 60
        assert row["peak_rss"] >= row["pss"] > row["shared"] > 1e6
        assert 0 <= row["accuracy"] <= 1
    assert one["all_reduce_s"] == 0 < two["all_reduce_s"]
    assert one["parameters"] == two["parameters"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Predicted, not measured" in page
    assert not re.search(r'(src|href)="(?!data:)', page)  # the page needs no other files
    lines = (tmp_path / "out" / "cells.jsonl").read_text()
    capsys.readouterr()
    assert main(arguments) == 0  # all cells have been run
    assert (tmp_path / "out" / "cells.jsonl").read_text() == lines
    assert main(["bench", "report", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 0


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_configurations(path):
    grid = read_grid(path, Cell)
    assert {cell.system for cell in grid.cells} >= {"hoptrain", "pyg", "dgl"}
    assert grid.rounds == 3


def test_the_grid_that_the_page_shows(tmp_path):
    page = (CONFIGS.parents[1] / "docs" / "studies.md").read_text()
    (tmp_path / "grid.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    grid = read_grid(tmp_path / "grid.yaml", Cell)
    assert (len(grid.cells), grid.rounds, grid.limit) == (3 * 2 * 2 + 4 * 2, 3, 120)


def test_mistakes(tmp_path, capsys):
    assert main(["bench", "scale", "--out", str(tmp_path)]) == 2
    assert "no grid is named" in capsys.readouterr().err
    assert main(["bench", "report", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "holds no study" in capsys.readouterr().err
    other = {"key": "a", "round": 0, "cell": {"system": "fit"}}
    (tmp_path / "cells.jsonl").write_text(json.dumps(other) + "\n")
    assert main(["bench", "report", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "holds no study of 'hoptrain bench scale'" in capsys.readouterr().err


def test_quick_takes_three_rounds(tmp_path):
    config = tmp_path / "grid.yaml"
    config.write_text("rounds: 7\ngrids: [{system: [hoptrain]}]")
    for file in (None, config):
        assert scale.read(Namespace(quick=True, config=file, systems=["hoptrain"])).rounds == 3


def test_seeds_of_an_epoch(dataset):
    some = seeds_of(dataset, Cell(system="hoptrain", num_seeds=10))
    assert len(set(some.tolist()) & set(dataset.split("train").tolist())) == 10
    assert np.array_equal(some, seeds_of(dataset, Cell(system="dgl", num_seeds=10, seed=5)))
    assert len(seeds_of(dataset, Cell(system="hoptrain"))) == len(dataset.split("train"))


def test_merge_takes_the_slowest_rank():
    def rank(*seconds):
        epochs = [
            {
                "seconds": s,
                "phases": {"wait": s},
                "steps": 2,
                "seeds": 5,
                "edges": 7,
                "rows": 6,
                "sample_s": 1,
                "gather_s": 1,
                "trainer_cpu_s": s,
            }
            for s in seconds
        ]
        facts = dict.fromkeys(("accuracy", "loss", "parameters", "threads", "pinned", "device", "gradient_bytes"), 0)
        used = {"peak_rss": 10, "pss": 6, "shared": 2, "gpu_bytes": 0}
        return {"epochs": epochs, "first_epoch_s": 9.0} | used | facts

    found = merge([rank(1.0, 5.0, 3.0), rank(2.0, 1.0, 1.0)])
    assert (found["epoch_s"], found["phases"]) == (3.0, {"wait": 3.0})
    assert (found["seeds"], found["peak_rss"], found["pss"]) == ([5, 5], 20, 12)


# Tables.


def line(system, epoch_s, number=0, *, workers=2, ranks=1, accuracy=0.9, outcome="completed", arch="sage", **changes):
    cell = {"system": system, "arch": arch, "ranks": ranks, "workers": workers, "batch_size": 512, "allocator": "malloc"}
    cell |= {"algorithm": "neighbor"}
    cell |= {"dataset": "d", "scale": 1.0, "expand": "new" if system == "pyg" else "all", "seed": 0, "hidden": 8}
    cell |= {"epochs": 2, "lr": 0.1, "dropout": 0.5, "fanouts": [2, 2]}
    found = {
        "epoch_s": epoch_s,
        "first_epoch_s": 2 * epoch_s,
        "steps": [10 // ranks] * ranks,
        "phases": {"wait": 0.25 * epoch_s, "copy": 0.0, "train": 0.75 * epoch_s, "all_reduce": 0.0, "other": 0.0},
        "trainer_cpu_s": 0.75 * epoch_s,
        "sample_s": 2.0,
        "gather_s": 1.0,
        "accuracy": accuracy,
        "device": "cpu",
        "pinned": False,
    }
    found |= {name: [4] * ranks for name in ("seeds", "edges", "rows")}
    found |= dict.fromkeys(("peak_rss", "pss", "shared", "gpu_bytes", "loss", "parameters", "gradient_bytes", "threads"), 1)
    key = f"{system}{workers}{ranks}{arch}"
    facts = {"machine": {"cpu": "c", "cores": 4, "memory": 8e9, "python": "3"}, "versions": {"torch": "2"}, "commit": "abc", "date": "2026"}
    facts |= {"load": {"busy_cores": 0.0 if ranks == 1 else 1.5, "load_average": 1.0 * ranks}}
    why = None if outcome == "completed" else "it slept"
    base = {"key": key, "round": number, "cell": cell, "outcome": outcome, "why": why, "log": f"logs/{key}.log"} | facts
    return base | {"found": found | changes if outcome == "completed" else None}


def test_ratios_are_formed_within_a_round():
    lines = [line("hoptrain", s, n) for n, s in enumerate((1.0, 2.0, 1.0))]
    lines += [line("dgl", s, n) for n, s in enumerate((3.0, 8.0, 2.0))] + [line("pyg", s, n) for n, s in enumerate((9.0, 5.0, 9.0))]
    lines += [line("hoptrain", 1.0, workers=0), line("dgl", 1.5, workers=0, accuracy=0.92)]
    rows = {(row["system"], row["workers"]): row for row in rows_of(lines)}
    assert rows["hoptrain", 2]["speedup"] == 2.5  # median of 3, 2.5 and 2: PyG is the fastest baseline in the second round
    assert rows["hoptrain", 2]["epoch_s"] == 1.0
    assert rows["hoptrain", 2]["spread"] == 1.0
    assert rows["dgl", 2]["speedup"] is None
    summary = summarize(list(rows.values()))
    assert summary.pop("accuracy_gap") == pytest.approx(2)
    assert summary.pop("best_setting_ratio") == 1.5
    assert summary == {"epoch_ratio_best_peer": 2.5, "min_epoch_ratio": 1.5, "cells": 5, "hung_cells": 0, "hoptrain_bad_cells": 0}


def test_a_cell_that_hung_once_has_hung():
    rows = rows_of([line("hoptrain", 1.0, 0), line("hoptrain", 1.0, 1, outcome="hung"), line("dgl", 1.0, outcome="skipped")])
    assert [(row["outcome"], row["epoch_s"], row["why"]) for row in rows] == [("hung", 1.0, "it slept"), ("skipped", None, "it slept")]
    assert summarize(rows) == {"cells": 2, "hung_cells": 1, "hoptrain_bad_cells": 1}


def test_rows_of_cells_that_differ_do_not_look_alike():
    """Results of different cells have different names, so that old results in a folder are not taken for those of an edited grid."""
    lines = [line(system, 1.0) for system in ("hoptrain", "pyg")]
    assert {plots.place_of(row) for row in rows_of(lines)} == {"sage, 1 rank, 2 workers, batch 512"}
    before = [one | {"key": f"{one['key']}-before", "cell": one["cell"] | {"scale": 0.5, "hidden": 16}} for one in lines]
    other = line("hoptrain", 1.0, arch="gat")
    places = [plots.place_of(row) for row in rows_of([*lines, *before, other])]
    assert [place.partition("batch 512")[2] for place in places] == [", scale 1.0, hidden 8"] * 2 + [", scale 0.5, hidden 16"] * 2 + [""]


def test_report_of_what_went_wrong(tmp_path):
    lines = [line("hoptrain", 1.0), line("hoptrain", 0.6, ranks=2), line("dgl", 1.0, outcome="hung"), line("dgl", 3.0, ranks=2)]
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "dgl21sage.stacks").write_text("process 1, state S\n  sleep (<here> & there)\n")
    report.write(tmp_path)
    for name in ("report.md", "report.html"):
        page = (tmp_path / name).read_text()
        assert "it slept" in page
        assert "What hung, failed or was skipped" in page
    assert "sleep (&lt;here&gt; &amp; there)" in page
    assert "5.00" in page
    tables = [row for row in (tmp_path / "report.md").read_text().splitlines() if row.startswith("|")]
    assert max(map(len, tables)) <= 120
    assert "other programs kept 0.0 to 1.5 of its cores busy; the largest load average was 2.0" in page


@pytest.mark.promise
def test_pictures():
    rows = rows_of([line(system, 1.0 + ranks, ranks=ranks) for system in ("hoptrain", "dgl") for ranks in (1, 2)])
    (axes,) = plots.scaling(rows).axes
    assert {drawn.get_label(): list(drawn.get_ydata()) for drawn in axes.lines} == {"hoptrain": [2.0, 3.0], "DGL": [2.0, 3.0]}
    (axes,) = plots.phases(rows).axes
    widths = [bar.get_width() for bar in axes.patches]
    assert sum(widths) == pytest.approx(sum(row["epoch_s"] + 3 for row in rows))
    assert {name: drawn.claim for name, drawn in plots.draw(rows).items()} == {
        "ranks": "Time of an epoch with 2 ranks relative to one rank: hoptrain 150%, DGL 150%",
        "phases": "Fraction of an epoch spent waiting for data: hoptrain 25%, DGL 25%",
        "memory": "Memory of all processes together: hoptrain 0.0 GB, DGL 0.0 GB",
    }


# The what-if model.


def test_what_if_by_hand():
    costs = what_if.Costs(beside=0.4, own=0.1, cpu=0.1, steps=100, gradient_bytes=10**6)
    link = what_if.Link(name="", bandwidth=1e8, latency=0.001)
    many = {"cores": 1000, "link": link}
    assert what_if.predict(costs, ranks=1, workers=0, **many) == pytest.approx(50)  # sampling and training take turns
    assert what_if.predict(costs, ranks=1, workers=2, **many) == pytest.approx(20)  # the workers limit the speed
    assert what_if.predict(costs, ranks=1, workers=8, **many) == pytest.approx(10)  # the trainer limits the speed
    assert what_if.predict(costs, ranks=1, workers=8, cores=2, link=link) == pytest.approx(25)  # the cores limit the speed
    assert what_if.predict(costs, ranks=4, workers=8, **many) == pytest.approx(25 * (0.1 + 6 * (0.0025 + 0.001)))


def study_by_hand(handover, cores):
    """Yield results of a system whose steps take the time that the model predicts for ``handover`` and ``cores``."""
    costs = what_if.Costs(beside=0.5, own=0.3, cpu=0.45, steps=10, gradient_bytes=1, handover=handover)
    for ranks, workers in ((1, 0), (1, 2), (1, 4), (2, 2)):
        seconds = what_if.predict(costs, ranks=ranks, workers=workers, cores=cores)
        trained = {"phases": {"wait": 0, "copy": 0, "train": 10 * 0.3, "all_reduce": 0, "other": 0}}
        loaded = (
            {"sample_s": 10 * 0.3, "gather_s": 10 * 0.2} if workers == 0 else {"sample_s": 9.0, "gather_s": 9.0}
        )  # includes waits for the other workers
        work = {"trainer_cpu_s": 10 * (0.95 if workers == 0 else 0.45)}
        yield line("hoptrain", seconds, workers=workers, ranks=ranks, **trained, **loaded, **work)


@pytest.mark.parametrize("handover", [0.0, 0.25])
def test_what_if_finds_what_workers_cost_beyond_their_work(handover):
    rows = rows_of(list(study_by_hand(handover, cores=2)))
    assert what_if.calibrate(what_if.basis(rows, rows[-1]), cores=2).handover == pytest.approx(handover)
    checked = what_if.check(rows, cores=2)
    assert [(row["ranks"], row["workers"]) for row in checked] == [(1, 4), (2, 2)]  # the other cells calibrated the model
    assert what_if.typical_error(checked) == (pytest.approx(0), pytest.approx(0))
    for of_system in what_if.table(rows, 2, cores=64):
        step = max(0.3, 0.5 / of_system["workers"]) + handover / 64  # one rank has all 64 cores for the core-seconds of the handover
        assert of_system["epochs_s"][1] == pytest.approx(10 * step)


def test_what_if_takes_the_cells_with_as_many_threads():
    """A run with one thread per rank is predicted from a measured run with one thread: 0.6 s per step, not the 0.4 s of two threads."""
    lines = [
        line("hoptrain", 10 * own, workers=0, threads=threads, trainer_cpu_s=10 * cpu, sample_s=0.0, gather_s=0.0, phases=trained(10 * own))
        | {"key": str(threads)}
        for threads, own, cpu in ((1, 0.6, 0.6), (2, 0.4, 0.7))
    ]
    rows = rows_of([*lines, line("hoptrain", 3.0, workers=0, ranks=2)])
    (checked,) = what_if.check(rows, cores=2)
    assert checked["predicted_s"] == pytest.approx(3.0, rel=0.001)
    (checked,) = what_if.check(rows[1:], cores=2)
    assert checked["predicted_s"] == pytest.approx(3.5, rel=0.001)
    with_two_workers, _ = what_if.table(rows, 2, cores=64)
    assert with_two_workers["epochs_s"][1] == pytest.approx(4.0)  # with 64 cores a rank has more threads than any measured run


def trained(seconds):
    return dict.fromkeys(PHASES, 0.0) | {"train": seconds}


def test_what_if_states_its_error():
    rows = rows_of(
        [line("hoptrain", 4.0, workers=0, sample_s=0.6, gather_s=0.4), line("hoptrain", 2.0, ranks=2), line("dgl", 2.0, outcome="failed")]
    )
    (checked,) = what_if.check(rows, cores=4)
    assert (checked["ranks"], checked["measured_s"]) == (2, 2.0)
    assert what_if.typical_error([checked]) == (pytest.approx(abs(checked["predicted_s"] / 2 - 1)),) * 2
    assert what_if.typical_error([]) is None


# Loaders.


def test_blocks_of_pygs_batches():
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 300, 4000), rng.integers(0, 300, 4000), 320)
    for fanouts in ([5], [4, 3], [3, 2, 2], [-1, -1]):
        batch = NeighborSampler(fanouts, expand="new").sample(graph, np.r_[310, 0:20]).to("cpu")
        found = nested_blocks(batch.blocks[0].edge_index(), len(batch.node_ids), batch.num_seeds, len(fanouts))
        for mine, expected in zip(found, batch.blocks, strict=True):
            assert (mine.num_dst, mine.num_src) == (expected.num_dst, expected.num_src)
            assert torch.equal(mine.indptr, expected.indptr.long())
            assert torch.equal(mine.indices, expected.indices.long())


@pytest.mark.parametrize("system", ["hoptrain", "pyg", "dgl"])
@pytest.mark.parametrize("workers", [0, 2])
def test_all_systems_train_on_the_same(system, workers, tmp_path):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 60, 400), rng.integers(0, 60, 400), 60)
    x, y = rng.random((60, 5), dtype=np.float32), rng.integers(0, 3, 60)
    made = Dataset(name="small", graph=graph, x=x, y=y, splits={"train": np.arange(40)}, num_classes=3)
    made.save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    cell = Cell(system=system, workers=workers, fanouts=(-1, -1), batch_size=40)
    try:
        feed = FEEDS["neighbor"][system](data, cell, Place(0, np.arange(40)))
    except InputError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model = GNN("gat", 5, 8, 3, 2, heads=2).eval()
    try:
        (item,) = [feed.item(batch, torch.device("cpu")) for batch in feed.epoch(0)]
        logits = model(item.x, item.blocks, torch.empty(0))
        scores = torch.nn.functional.cross_entropy(logits, item.y, reduction="none").detach()
        whole = NeighborSampler([-1, -1]).sample(graph, np.arange(40))
        expected = model(torch.from_numpy(x[whole.node_ids]), whole.to("cpu").blocks, torch.empty(0)).detach()
        expected = torch.nn.functional.cross_entropy(expected, torch.from_numpy(y[:40]), reduction="none")
        assert torch.allclose(scores.sort().values, expected.sort().values, atol=1e-5)  # the order of the seeds may differ
        sampled, gathered = feed.work()
        assert sampled > 0 < gathered
        assert feed.work() == (0, 0)
    finally:
        feed.close()
        del feed


# Memory.


def test_memory_of_a_family():
    code = "import sys, time; block = bytearray(50_000_000); print('ready', flush=True); time.sleep(600)"
    before = processes.memory(processes.family())
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        family = processes.family()
        assert child.pid in [process.pid for process in family]
        assert processes.memory(family)["pss"] - before["pss"] > 45e6
    finally:
        child.kill()
        child.communicate()
    deadline = time.monotonic() + 10
    while processes.family(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes.memory([process for process in family if process.pid == child.pid]) == {"peak_rss": 0, "pss": 0, "shared": 0}


SIZES_RULE = "2 epochs least 1 seed each rank"
MISTAKES = {
    "an unknown system": Mistake(lambda: Cell(system="torch"), value="'torch'", rule="system", remedy="hoptrain pyg dgl"),
    "a system without the algorithm": Mistake(
        lambda: Cell(system="dgl", algorithm="ladies", layer_sizes=(4, 4)), value="'dgl'", rule="system", remedy="hoptrain papers"
    ),
    "clusters that are not given": Mistake(
        lambda: Cell(system="dgl", algorithm="cluster"),
        value="0 clusters",
        rule="cluster needs clusters layer_sizes rank",
        remedy="give these options",
    ),
    "an unknown arch": Mistake(lambda: Cell(system="dgl", arch="gcn"), value="'gcn'", rule="arch", remedy="sage gat"),
    "no ranks": Mistake(lambda: Cell(system="dgl", ranks=0), value="0 ranks", rule=SIZES_RULE, remedy="larger"),
    "fewer seeds than ranks": Mistake(
        lambda: Cell(system="dgl", ranks=4, num_seeds=3), value="3 seeds", rule=f"4 ranks {SIZES_RULE}", remedy="larger"
    ),
}


@each_of(MISTAKES)
def test_cells_that_cannot_be(mistake, request):
    mistake.check(request)
