"""The reads that ``hoptrain data info --feature-cache`` predicts equal a loader's, and each input error is reported in one line."""

import re

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands import memory_facts

BUYS, LIKE = ("user", "buys", "item"), ("item", "like", "item")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save a data set of 2000 nodes with 128 bytes of features each, and return its folder."""
    draw = np.random.default_rng(3)
    edges = np.stack([(2000 * draw.random(12_000) ** 3).astype(np.int64), draw.integers(0, 2000, 12_000)])
    folder = tmp_path_factory.mktemp("facts") / "data"
    splits = {"train": np.arange(0, 2000, 5)}
    Dataset(x=draw.random((2000, 32), dtype=np.float32), y=draw.integers(0, 3, 2000), edge_index=edges, splits=splits).save(folder)
    return folder


@pytest.fixture(autouse=True)
def _time_to_plan(monkeypatch):
    """Allow more time for planning, since a slow machine may take longer to compile."""
    monkeypatch.setattr(memory_facts, "PLAN_S", 600.0)


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def test_an_epoch_reads_the_predicted_rows(saved):
    data = Dataset.open(saved)
    facts = dict(memory_facts.memory_facts(data, "130KiB", [3, 2], 32))
    with SampleLoader(data, NeighborSampler([3, 2]), batch_size=32, feature_cache="130KiB") as loader:
        list(loader)
        before = loader.feature_cache.filled
        list(loader)
        second = loader.feature_cache.filled.minus(before)
    assert numbers(facts["rows per epoch"])[:2] == [second.num_used, second.num_missed]
    assert 0.1 < second.num_missed / second.num_used < 0.9
    assert numbers(facts["epoch"])[:5] == [13, 32, 3, 2, 26]
    assert numbers(facts["memory"])[-3:-1] == [loader.feature_cache.shared.tables[0].num_slots, 2000]
    assert numbers(facts["reads per epoch"])[0] <= second.num_missed
    assert float(facts["sampling ahead"].split()[0]) >= 0


def test_edges_that_do_not_fit(saved, memory_for_edges):
    memory_for_edges(10_000)
    data, memory = Dataset.open(saved), "600KiB"  # enough memory for all rows
    facts = dict(memory_facts.memory_facts(data, memory, [3, 2], 32))
    assert "which hold 2,000 of 2,000 rows" in facts["memory"]
    together, superbatches = numbers(facts["edges"])[-2:]
    assert data.graph.indices.nbytes == 48_000
    assert facts["edges"].startswith("0.0 MiB, read from disk for ")
    assert superbatches == -(-13 // together)
    with SampleLoader(data, NeighborSampler([3, 2]), batch_size=32, feature_cache=memory) as loader:
        for _ in range(4):
            list(loader)
        before = loader.feature_cache.filled
        for _ in range(4):
            list(loader)
        filled = loader.feature_cache.filled.minus(before)  # nearly all rows are cached, so the reads are of edges
    assert 0.4 * (filled.num_reads - filled.num_missed) / 4 <= numbers(facts["edge reads per epoch"])[0] <= 2.5 * filled.num_reads / 4


def test_edges_of_a_heterogeneous_graph_that_do_not_fit(tmp_path, memory_for_edges):
    draw, graph = np.random.default_rng(4), {("user", "buys", "item"): 9000, ("item", "like", "item"): 4000}
    num = {"user": 800, "item": 1200}
    edges = {relation: (draw.integers(0, num[relation[0]], n), draw.integers(0, num[relation[2]], n)) for relation, n in graph.items()}
    HeteroDataset(
        graph=HeteroGraph.from_edges(num, edges),
        seed_type="item",
        x={"user": draw.random((800, 32))},
        splits={"train": np.arange(0, 1200, 3)},
    ).save(tmp_path / "mixed")
    memory_for_edges(10_000)
    data, memory = HeteroDataset.open(tmp_path / "mixed"), "600KiB"
    facts = dict(memory_facts.memory_facts(data, memory, [3, 2], 32))
    assert facts["edges"].startswith("0.0 MiB, read from disk for ")
    together, superbatches = numbers(facts["edges"])[-2:]
    assert superbatches == -(-13 // together)
    with SampleLoader(data, HeteroSampler([3, 2], "item"), batch_size=32, feature_cache=memory) as loader:
        for _ in range(4):
            list(loader)
        before = loader.feature_cache.filled
        for _ in range(4):
            list(loader)
        filled = loader.feature_cache.filled.minus(before)
    assert 0.4 * (filled.num_reads - filled.num_missed) / 4 <= numbers(facts["edge reads per epoch"])[0] <= 2.5 * filled.num_reads / 4


def test_a_plan_for_which_there_is_no_time_is_of_fewer_steps(saved, monkeypatch):
    monkeypatch.setattr(memory_facts, "PLAN_S", 0.0)
    facts = dict(memory_facts.memory_facts(Dataset.open(saved), "auto", [3, 2], 32))
    assert facts["epoch"].endswith("predicted from 1 step")
    assert "2,000 of 2,000 rows (100%)" in facts["memory"]


def test_fanouts_by_relation_and_weights(tmp_path, capsys):
    draw, num = np.random.default_rng(4), {"user": 800, "item": 1200}
    edges = {relation: (draw.integers(0, num[relation[0]], 9000), draw.integers(0, 1200, 9000)) for relation in (BUYS, LIKE)}
    HeteroDataset(
        graph=HeteroGraph.from_edges(num, edges, weights={LIKE: draw.random(9000, dtype=np.float32) ** 9}),
        seed_type="item",
        x={"user": draw.random((800, 32)), "item": draw.random((1200, 16))},
        splits={"train": np.arange(0, 1200, 3)},
    ).save(tmp_path / "mixed")
    given = ["--feature-cache", "200KiB", "--batch-size", "32", "--weighted", "--fanouts", "user:buys:item=3,1", "4,2"]
    assert main(["data", "info", str(tmp_path / "mixed"), *given]) == 0
    said = dict(re.split("  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert said["epoch"].startswith(
        "13 steps of 32 seeds, fanouts [3, 1] for user:buys:item, [4, 2] for other relations by weight; predicted from 26 steps"
    )
    sampler = HeteroSampler({"user:buys:item": [3, 1]}, "item", weighted=True, default=[4, 2])
    with SampleLoader(HeteroDataset.open(tmp_path / "mixed"), sampler, batch_size=32, feature_cache="200KiB") as loader:
        list(loader)
        before = loader.feature_cache.filled
        list(loader)
        second = loader.feature_cache.filled.minus(before)
    assert numbers(said["rows per epoch"])[:2] == [second.num_used, second.num_missed]


@pytest.mark.parametrize("memory", ["15KiB", "60KiB"])
def test_too_little_memory_is_named_with_table_and_minimum(saved, memory, capsys):
    given = ["data", "info", str(saved), "--fanouts", "3,2", "--batch-size", "64", "--feature-cache"]
    assert main([*given, memory]) == 2
    [said] = [line for line in capsys.readouterr().err.splitlines() if "feature_cache is" in line]
    assert re.search(
        r"feature_cache is [\d,]+ bytes: [\d,]+ are for sampled steps, [\d,]+ are for x, which hold [\d,]+ of its 2,000 rows \(128 bytes each\)",
        said,
    )
    assert main([*given, re.findall(r"give (\w+) at least", said)[0]]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--feature-cache", "8GiB", "--fanouts", "a:b:a=3,2"], "--fanouts names a:b:a: "),
        (["--feature-cache", "8GiB", "--fanouts", "3,2", "4,2"], "--fanouts is 3,2 4,2: the value for all relations is given twice"),
        (["--feature-cache", "8GiB", "--fanouts", "3,2", "--weighted"], "weighted=True, but the graph has no weights"),
        (["--weighted"], "--weighted is on, but --feature-cache is not given"),
        (["--feature-cache", "0.5"], "feature_cache is 0.5: it must be bytes with their unit, or auto"),
        (["--feature-cache", "8GiB", "--fanouts", "ten"], "--fanouts is ten: it must be integers or fractions separated by commas"),
        (["--fanouts", "3,2"], "--fanouts is 3,2, but --feature-cache is not given"),
        (["--split", "val"], "--split is val, but --feature-cache is not given"),
        (["--feature-cache", "8GiB", "--split", "best"], "has no split 'best': it has train"),
        (["--batch-size", "3"], "--batch-size is 3, but --feature-cache is not given"),
    ],
)
def test_mistakes(saved, options, message, capsys):
    assert main(["data", "info", str(saved), *options]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_data_without_features(tmp_path):
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    Dataset(y=np.zeros(3, np.int64), edge_index=edges, splits={"train": np.arange(3)}).save(tmp_path / "plain")
    with refused("--feature-cache is 8GiB", "features read disk none", "leave out"):
        memory_facts.memory_facts(Dataset.open(tmp_path / "plain"), "8GiB", [3], 2)
