import gc
import inspect
import json
import os
import time
import weakref
from functools import partial

import numpy as np
import pytest
from cases.mistakes import refused
from fake_loaders import Counter, Here, absent, dies, slow

from hoptrain.benchmarks import loader
from hoptrain.benchmarks.baselines import dgl, hoptrain, loaders, pyg
from hoptrain.benchmarks.baselines.loaders import Case, Consumer
from hoptrain.benchmarks.common import pictures
from hoptrain.benchmarks.common.child import Child, ChildError
from hoptrain.benchmarks.loader import Baseline
from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.samplers import SampleLoader
from hoptrain.trainers.cli import main

TINY = ["--quick", "--rounds", "2", "--batch-size", "16", "--fanouts", "4,3"]


@pytest.fixture
def folder(dataset, tmp_path):
    path = tmp_path / "data"
    dataset.save(path)
    return path


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(loader, "IDLE_S", 0.1)
    monkeypatch.setattr(loader, "idle_cpu_share", lambda batches: 0.01)
    monkeypatch.setattr(loader, "tcmalloc", lambda: None)


def run(folder, out, *options):
    assert main(["bench", "loader", "--graphs", str(folder), "--out", str(out), *TINY, *options]) == 0
    return json.loads((out / "results.json").read_text())


# The whole benchmark.


def test_narrow_features(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    monkeypatch.setattr(loader, "Child", partial(Here, environment=None))
    content = run(folder, tmp_path / "out", "--baselines", "--workers", "0", "--modes", "new", "--features", "int8")
    rows = {row["system"]: row for row in content["records"]}
    assert list(rows) == ["hoptrain", "hoptrain int8", "hoptrain int8 codes"]
    assert len({(row["edges_batch"], row["rows_batch"]) for row in rows.values()}) == 1
    assert rows["hoptrain"]["over_float32"] is None
    for name in ("int8", "int8_codes"):
        assert content["summary"][f"min_over_float32_{name}"] == rows[f"hoptrain {name.replace('_', ' ')}"]["over_float32"] > 0


def test_hoptrain_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    content = run(folder, tmp_path / "out", "--baselines", "--workers", "2", "--modes", "new")
    systems = [(row["mode"], row["system"], row["workers"]) for row in content["records"]]
    assert systems == [("new", "hoptrain", 0), ("new", "hoptrain", 2)]
    for row in content["records"]:
        assert (row["graph"], row["fanouts"], row["batch"], row["ratio"], row["left_out"]) == ("random", "4,3", 16, None, None)
        assert row["ms_batch"] * row["batches_s"] == pytest.approx(1e3)
        assert 0 < row["touch_share"] < 1
        assert row["edges_batch"] > row["rows_batch"] > 16
    edges = {(row["edges_batch"], row["rows_batch"]) for row in content["records"]}
    assert len(edges) == 1  # the number of edges is the same for any number of workers
    assert content["summary"].keys() == {"idle_cpu_share", "max_idle_share"}
    assert content["summary"]["idle_cpu_share"] == 0.01
    assert content["seeds"] == [0]


def child_if_it_dies(make, opener, *args, environment=None, patience):
    """Return a ``Child`` for the loader that ends its process, and a stand-in for the others."""
    kind = Child if opener is dies else Here
    return kind(make, opener, *args, environment=environment, patience=patience)


def test_baselines(folder, tmp_path, monkeypatch, capsys):
    openers = {"slow": slow, "less": partial(slow, keep=0.8), "absent": absent, "dies": dies, "new": slow}
    fakes = {name: Baseline(name, "new" if name == "new" else "all", opener) for name, opener in openers.items()}
    monkeypatch.setattr(loader, "BASELINES", fakes)
    monkeypatch.setattr(loader, "Child", child_if_it_dies)
    content = run(folder, tmp_path / "out", "--modes", "all", "--workers", "0", "--baselines", *fakes)
    ratios = {(row["system"], row["workers"]): row["ratio"] for row in content["records"] if row["left_out"] is None}
    assert ratios.keys() == {("hoptrain", 0), ("slow malloc", 0)}
    names = ("best_peer", "best_peer_random", "best_peer_malloc", "slow")
    assert {name: content["summary"][f"min_ratio_{name}"] for name in names} == dict.fromkeys(names, ratios["slow malloc", 0])
    lost = [(row["system"], row["workers"], row["left_out"]) for row in content["records"] if row["left_out"] is not None]
    assert lost == [("dies malloc", 0, "the process ended with exit code 3")]
    out = capsys.readouterr().out
    assert "skipped absent malloc: not installed" in out
    assert "left out dies malloc, all, 0: the process ended with exit code 3" in out
    assert "left out less malloc, all, 0: " in out


def test_baselines_run_with_tcmalloc_too(monkeypatch):
    monkeypatch.setattr(loader, "tcmalloc", lambda: "libtcmalloc.so")
    assert loader.allocators() == {"malloc": {}, "tcmalloc": {"LD_PRELOAD": "libtcmalloc.so"}}


def test_default_workers(folder):
    assert inspect.signature(SampleLoader).parameters["num_workers"].default == loader.DEFAULT_WORKERS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "-1"], "with [-1] workers: "),
        (["--batches", "0"], "0 batches in 2 rounds"),
        (["--baselines", "nobody"], "'nobody' is unknown: it must be one of dgl, pyg"),
    ],
)
def test_mistakes(folder, tmp_path, capsys, options, message):
    assert main(["bench", "loader", "--graphs", str(folder), "--out", str(tmp_path), *TINY, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_data_set_without_features(graph, tmp_path, capsys):
    Dataset(name="bare", graph=graph).save(tmp_path / "bare")
    assert main(["bench", "loader", "--graphs", str(tmp_path / "bare"), "--out", str(tmp_path), *TINY]) == 2
    assert "bare lacks features or labels" in capsys.readouterr().err


def test_picture():
    row = {"graph": "g", "fanouts": "4,3", "batch": 16, "mode": "all", "system": "hoptrain", "ratio": None}
    records = [row | {"workers": 1, "batches_s": 8.0}, row | {"workers": 2, "batches_s": 12.0}]
    (axes,) = pictures.speeds(
        [*records, row | {"system": "DGL malloc", "workers": 0, "batches_s": 3.0, "ratio": 4.0}], *pictures.LOADER
    ).axes
    assert [bar.get_width() for bar in axes.patches] == [8.0, 12.0, 3.0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["hoptrain, 1 worker", "hoptrain, 2 workers", "DGL malloc, 0 workers"]


# The consumer.


@pytest.mark.parametrize("width", [1, 16, 17, 50])
def test_touch(width):
    x = np.random.default_rng(0).random((30, width), dtype=np.float32)
    assert loaders.touch(x, 16) == pytest.approx(x[:, ::16].sum(dtype=np.float64))


def test_the_consumer_holds_no_batch():
    seen = []

    def epoch():
        for edges in (5, 7):
            assert all(ref() is None for ref in seen)
            x = np.ones((3, 4), np.float32)
            seen.append(weakref.ref(x))
            yield edges, x
            del x

    load = loaders.consume(epoch)
    assert (load.batches, load.edges, load.rows) == (2, 12, 6)
    assert load.touch_s > 0


def test_idle_share_is_of_one_core():
    assert 0 <= loaders.idle_cpu_share(3, 0.1) < 0.5


# The baselines.


@pytest.mark.parametrize(("opener", "mode"), [(dgl.open_loader, "all"), (pyg.open_loader, "new")])
def test_baselines_do_the_same_work(tmp_path, opener, mode):
    src, dst = np.divmod(np.arange(60**2), 60)
    features = np.random.default_rng(0).random((60, 5), dtype=np.float32)
    data = Dataset(name="complete", graph=Graph.from_edges(src, dst, 60), x=features, y=np.zeros(60, np.int64), num_classes=1)
    try:
        make = opener(data)
    except InputError as error:
        pytest.skip(str(error))
    case = Case(fanouts=(40, 3), batch_size=8, seeds=np.arange(24))
    expected = list(hoptrain.open_loader(mode, data)(case, 0)())
    for workers in (0, 2):
        epoch = make(case, workers)
        for _ in range(2):
            found = list(epoch())
            assert len(found) == 3
            assert sum(edges for edges, _ in found) == pytest.approx(sum(edges for edges, _ in expected), rel=0.05)
            for _, x in found:
                assert set(map(tuple, x)) <= set(map(tuple, features))
                assert len(np.unique(x, axis=0)) == len(x)
        del epoch
        gc.collect()  # deletes the loader, which ends its workers


# The child process.


@pytest.fixture
def child():
    child = Child(Counter, 5, environment={"HOPTRAIN_X": "1"}, patience=30.0)
    yield child
    child.close()


def test_child(child):
    assert child.cpu_seconds() == 0
    assert [child.call("add", 2), child.call("add", 3)] == [7, 10]
    assert child.call("variable", "HOPTRAIN_X") == "1"
    before = child.cpu_seconds()
    child.call("spin", 0.2)
    assert child.cpu_seconds() - before >= 0.15
    other = child.call("start_another")
    child.close()
    child.close()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{other}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{other}")


def test_a_child_that_fails_is_restarted(child):
    child.call("add", 2)
    for method, value, words, below in (("fail", "Traceback", "", "what went wrong"), ("kill", "SIGKILL", "process killed by", "")):
        with refused(value, words, error=ChildError, below=below):
            child.call(method)
        assert child.cpu_seconds() == 0
    assert child.call("add", 1) == 6


def test_a_child_that_hangs_is_given_up():
    child = Child(Counter, 5, patience=0.2)
    with refused("0.2 s", "no answer", error=ChildError):
        child.call("spin", 600)
    assert child.cpu_seconds() == 0


def test_a_mistake_in_a_child():
    child = Child(Counter, -1)
    with refused("start", "negative"):
        child.call("add", 1)


def test_a_consumer_drops_the_case_before(folder):
    consumer = Consumer(partial(hoptrain.open_loader, "all"), folder)
    with refused("no case", "load", "prepare()", RuntimeError):
        consumer.load(0)
    for count in (32, 16):
        consumer.prepare(Case(fanouts=(2,), batch_size=16, seeds=np.arange(count)))
        assert [consumer.load(0).batches for _ in range(2)] == [count // 16] * 2
    assert consumer.load(0).rows > 16
