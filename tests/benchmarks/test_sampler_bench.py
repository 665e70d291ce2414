import json
from functools import partial

import numpy as np
import pytest
import torch

from hoptrain.benchmarks import sampler
from hoptrain.benchmarks.baselines import dgl, hoptrain, installed
from hoptrain.benchmarks.baselines.systems import System
from hoptrain.benchmarks.common import floor, options, pictures, rounds
from hoptrain.engine import Graph, InputError
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.trainers.cli import main

TINY = ["--quick", "--rounds", "2", "--batches", "2", "--batch-size", "16", "--fanouts", "4,3"]


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch):
    monkeypatch.setattr(floor, "READS", 1 << 10)
    monkeypatch.setattr(floor, "COPY_BYTES", 1 << 16)


@pytest.fixture
def folder(dataset, tmp_path):
    path = tmp_path / "data"
    dataset.save(path)
    return str(path)


def run(folder, out, *options):
    assert main(["bench", "sampler", "--graphs", folder, "--out", str(out), *TINY, *options]) == 0
    return json.loads((out / "results.json").read_text())


def slow_system(graph, *, family="DGL", mode="all", keep=1.0, delay=3):
    """Return a baseline that does hoptrain's work several times, and reports only a share of the edges."""

    def sample(fanouts, replace, seeds, first):
        sampler = NeighborSampler(fanouts, replace=replace, expand=mode)
        for _ in range(delay):
            edges = sum(sampler.sample(graph, ids, batch=first + i).num_edges for i, ids in enumerate(seeds))
        return int(edges * keep)

    def make(fanouts, replace, threads):
        return [
            System(family=family, name=f"{family} fake", mode=mode, threads=t, sample=partial(sample, fanouts, replace)) for t in threads
        ]

    return make


OWN = {"max_floor_multiple", "max_floor_multiple_random", "max_python_share"}

# The whole benchmark.


def test_hoptrain_alone(folder, tmp_path):
    content = run(folder, tmp_path / "out", "--baselines", "--threads", "1")
    assert [(row["mode"], row["system"], row["threads"]) for row in content["records"]] == [("all", "hoptrain", 1), ("new", "hoptrain", 1)]
    for row in content["records"]:
        assert (row["graph"], row["fanouts"], row["batch"], row["draws"], row["ratio"]) == ("random", "4,3", 16, "without", None)
        assert row["medges_s"] == pytest.approx(1e3 / row["ns_edge"])
        assert row["batches_s"] * row["edges_batch"] == pytest.approx(1e6 * row["medges_s"])
        assert row["floor_ns"] > 0
        assert row["floor_multiple"] > 0
    most = {name: max(row[name] for row in content["records"]) for name in ("floor_multiple", "python_share")}
    assert content["summary"] == {
        "max_floor_multiple": pytest.approx(most["floor_multiple"]),
        "max_floor_multiple_random": most["floor_multiple"],
        "max_python_share": most["python_share"],
    }
    assert content["seeds"] == [0]


def test_two_threads_and_baselines(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(options, "allowed_cores", lambda: 2)
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    fake = {"dgl": slow_system, "pyg-lib": partial(slow_system, family="PyG", mode="new")}
    monkeypatch.setattr(sampler, "BASELINES", fake)
    content = run(folder, tmp_path / "out", "--threads", "2", "1", "--baselines", "dgl", "pyg-lib")
    systems = {(row["mode"], row["system"], row["threads"]) for row in content["records"]}
    own = {(mode, name, t) for mode in ("all", "new") for name, t in (("hoptrain", 1), ("hoptrain", 2), ("hoptrain, shared", 2))}
    assert systems == own | {("all", "DGL fake", t) for t in (1, 2)} | {("new", "PyG fake", t) for t in (1, 2)}
    assert {row["ratio"] is None for row in content["records"] if row["system"].startswith("hoptrain")} == {True}
    names = {f"min_ratio_{name}_t{t}" for name in ("dgl", "dgl_fake", "pyg", "pyg_fake") for t in (1, 2)}
    assert content["summary"].keys() == names | OWN | {"min_scaling_t2", "min_machine_scaling_t2"}
    ratios = {row["threads"]: row["ratio"] for row in content["records"] if row["system"] == "DGL fake"}
    assert content["summary"]["min_ratio_dgl_t1"] == ratios[1]


def test_modes_without_a_baseline(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler, "BASELINES", {"dgl": slow_system})
    content = run(folder, tmp_path / "out", "--threads", "1", "--baselines", "dgl", "--modes", "new", "--replace")
    assert [(row["mode"], row["system"], row["draws"]) for row in content["records"]] == [("new", "hoptrain", "with")]


def test_a_baseline_that_samples_less_is_left_out(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sampler, "BASELINES", {"dgl": partial(slow_system, keep=0.9)})
    content = run(folder, tmp_path / "out", "--threads", "1", "--baselines", "dgl")
    assert {row["system"] for row in content["records"]} == {"hoptrain"}
    assert content["summary"].keys() == OWN
    assert "left out DGL fake, all, 1: " in capsys.readouterr().out


def test_absent_baselines_are_named(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    monkeypatch.setattr(options.harness, "load", lambda: {"busy_cores": 0.1, "load_average": 0.7})
    run(folder, tmp_path / "out", "--threads", "1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("other programs use 0.1 cores of this machine, and its load average is 0.7: ")
    assert lines[1:4] == [f"skipped {name}: not installed" for name in ("dgl", "pyg-lib", "torch-sparse")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "0"], "threads are [0]: they must be in [1, "),
        (["--threads", "1", "--batches", "0"], "0 batches in 2 rounds"),
        (["--fanouts", "a,b"], "'a,b' is not a list of integers; write for example 25,10"),
        (["--baselines", "nobody"], "'nobody' is unknown: it must be one of dgl, "),
    ],
)
def test_mistakes(folder, tmp_path, capsys, options, message):
    assert main(["bench", "sampler", "--graphs", folder, "--out", str(tmp_path), *TINY, *options]) == 2
    assert message in capsys.readouterr().err


def test_picture(folder, tmp_path):
    records = run(folder, tmp_path / "out", "--threads", "1", "--baselines")["records"]
    assert (tmp_path / "out" / "sampler.png").read_bytes().startswith(b"\x89PNG")
    slower = [record | {"system": "DGL", "medges_s": record["medges_s"] / 4, "ratio": 4.0, "floor_ns": None} for record in records]
    other = [record | {"fanouts": "9"} for record in records]
    first, second = pictures.speeds(records + slower + other, *pictures.SAMPLER).axes
    widths = [bar.get_width() for bar in first.patches]
    assert widths == [record["medges_s"] for pair in zip(records, slower, strict=True) for record in pair]
    assert len({bar.get_y() for bar in first.patches}) == 4
    assert sum("hoptrain: 4.0 x" in text.get_text() for text in first.texts) == 2
    assert len(second.patches) == 2


def test_summary_takes_the_worst_case():
    answers = [{"min_ratio_dgl_t1": 3.0, "max_floor_multiple": 1.5}, {"min_ratio_dgl_t1": 2.5, "max_floor_multiple": 1.2}, {"min_x": 1.0}]
    assert options.summarize(answers) == {"max_floor_multiple": 1.5, "min_ratio_dgl_t1": 2.5, "min_x": 1.0}


def test_the_fastest_variant_of_up_to_as_many_threads_counts():
    def system(family, name, threads):
        return System(family=family, name=name, mode="all", threads=threads, sample=lambda seeds, first: 0)

    found = [system("hoptrain", "hoptrain", 2), system("DGL", "DGL a", 1), system("DGL", "DGL b", 2), system("DGL", "DGL c", 4)]
    ns = {"hoptrain, all, 2": 10.0, "DGL a, all, 1": 30.0, "DGL b, all, 2": 40.0, "DGL c, all, 4": 5.0}
    costs = {label: rounds.Cost(np.full(3, value), 1.0) for label, value in ns.items()}
    assert sampler.answers(found, costs, {}) == {"min_ratio_dgl_a_t2": 3.0, "min_ratio_dgl_b_t2": 4.0, "min_ratio_dgl_t2": 3.0}


# The systems.


@pytest.mark.parametrize("mode", ["all", "new"])
def test_hoptrain_copies_what_it_samples(graph, mode):
    seeds = [np.arange(i, i + 20) for i in range(5)]
    sampler_ = NeighborSampler([4, 3], expand=mode)
    expected = [sampler_.sample(graph, ids, batch=7 + i) for i, ids in enumerate(seeds)]
    for system in hoptrain.open_neighbor(mode, graph)([4, 3], False, [1, 2]):
        assert system.sample(seeds, 7) == sum(batch.num_edges for batch in expected), system.label
    slots = Workspace(2)
    assert hoptrain.copy_out(expected[:2], slots) == expected[0].num_edges + expected[1].num_edges
    for i, batch in enumerate(expected[:2]):
        for name, array in batch.arrays().items():
            np.testing.assert_array_equal(slots.array(f"{i}.{name}", len(array), array.dtype), array)


def complete_graph(num_nodes=60):
    src, dst = np.divmod(np.arange(num_nodes**2), num_nodes)
    return Graph.from_edges(src, dst, num_nodes)


def test_dgl_fanouts_begin_at_the_seeds():
    try:
        graph = dgl.to_dgl(complete_graph(), dtype=np.int64)
    except InputError as error:
        pytest.skip(str(error))
    _, _, blocks = dgl.neighbor_sampler([5, 2], replace=False, fused=False).sample(graph, torch.arange(4))
    assert [block.num_edges() for block in reversed(blocks)] == [4 * 5, 2 * blocks[-1].num_src_nodes()]


@pytest.mark.parametrize(("name", "mode"), [("dgl", "all"), ("pyg-lib", "new"), ("torch-sparse", "new")])
def test_baselines_do_the_same_work(name, mode):
    graph = complete_graph()
    try:
        make = sampler.BASELINES[name](graph)
    except InputError as error:
        pytest.skip(f"{name}: {error}")
    seeds = [np.arange(10), np.arange(10, 20)]
    expected = sum(NeighborSampler([40, 3], expand=mode).sample(graph, ids).num_edges for ids in seeds)
    made = make([40, 3], False, [1, 2])
    assert {(system.mode, system.threads) for system in made} == {(mode, 1), (mode, 2)}
    for system in made:
        for _ in range(3):  # a later call could find what an earlier one left behind
            assert system.sample(seeds, 0) == pytest.approx(expected, rel=0.05), system.label


# The hardware bound.


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("offset", [0, 5, 15])
def test_lines(dtype, offset):
    array = np.zeros(10_000 + offset, dtype)[offset:]
    places = np.random.default_rng(0).integers(0, 10_000, 3_000)
    expected = {(array.ctypes.data + int(place) * array.itemsize) // 64 for place in places}
    assert floor.count_lines(array, places) == len(expected)
    assert floor.count_lines(array, places[:0]) == 0


@pytest.mark.parametrize("mode", ["all", "new"])
def test_work(graph, mode):
    batches = [NeighborSampler([4, 3], expand=mode).sample(graph, np.arange(30), batch=i) for i in range(2)]
    lines = destinations = edges = 0
    for batch in batches:
        blocks = batch.blocks if mode == "all" else batch.blocks[:1]
        lines += len({(graph.indices.ctypes.data + int(e) * graph.indices.itemsize) // 64 for block in blocks for e in block.edge_ids})
        destinations += sum(block.num_dst for block in blocks)
        edges += sum(block.num_edges for block in blocks)
    assert floor.count_work(graph, batches) == floor.Work(lines, destinations, edges)


def test_floor_of_an_edge():
    cost = {"line": np.array([10.0, 20.0]), "table": np.array([2.0, 4.0]), "offsets": np.array([4.0, 8.0]), "copy": np.array([0.05, 0.1])}
    np.testing.assert_allclose(floor.floor_per_edge(cost, floor.Work(lines=50, destinations=25, edges=100)), [8.6, 17.2])


def test_reads_are_random_and_all_done():
    memory = np.arange(1 << 10, dtype=np.int32)
    places = np.empty(64, np.int64)
    total = floor.random_reads(memory, 0, 1 << 14, places)
    assert total / (1 << 14) == pytest.approx(memory.mean(), rel=0.02)
    assert sum(floor.random_reads(memory, first, 1 << 12, places) for first in range(0, 1 << 14, 1 << 12)) == total


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_reads(graph, threads, monkeypatch):
    pieces = []
    monkeypatch.setattr(floor, "random_reads", lambda memory, first, number, places: pieces.append((first, number)))
    parts = floor.floor_parts(graph, [1, 2, 3])
    assert list(parts) == ["line", "table", "offsets", "copy", "line, 2", "line, 3"]
    reads = parts["line" if threads == 1 else f"line, {threads}"](0)
    assert sorted(pieces) == [(first, reads // 8) for first in range(0, reads, reads // 8)]


# On a GPU.


def test_no_device_is_one_line(folder, tmp_path, capsys, monkeypatch):
    sampler_cuda = pytest.importorskip("hoptrain.benchmarks.cases.sampler_cuda", exc_type=ImportError)
    monkeypatch.setattr(sampler_cuda, "cuda_status", lambda: "no CUDA device can be used")
    assert main(["bench", "sampler", "--device", "cuda", "--graphs", folder, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "hoptrain: --device cuda: no CUDA device can be used; run it on a machine with a GPU, or leave --device out\n"
    )
