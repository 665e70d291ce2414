"""The storage benchmark measures all systems with the same batches, and its counts of accesses are exact."""

import json
import mmap

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.benchmarks.storage import counts, speed
from hoptrain.benchmarks.storage.disk import Disk
from hoptrain.benchmarks.storage.sources import Cached, InMemory, Mapped
from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, Schedule
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.trainers.cli import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a data set of 2000 rows of 128 bytes, opened from a folder."""
    draw = np.random.default_rng(0)
    edges = np.stack([(2000 * draw.random(12_000) ** 2).astype(np.int64), draw.integers(0, 2000, 12_000)])
    folder = tmp_path_factory.mktemp("storage") / "data"
    Dataset(
        x=draw.random((2000, 32), dtype=np.float32), y=draw.integers(0, 3, 2000), edge_index=edges, splits={"train": np.arange(0, 2000, 8)}
    ).save(folder)
    return Dataset.open(folder)


@pytest.fixture(scope="module")
def epochs(saved):
    return counts.accesses(saved, NeighborSampler([3, 2]), Schedule(items=saved.split("train"), batch_size=16, seed=0), 3)


def test_rows_are_those_of_the_file(saved, epochs):
    file, table = FileRows.of(saved.x, "features"), np.array(saved.x)
    made = counts.policies(saved, epochs[0], 300)
    sources = [InMemory(file=file), Mapped(file=file), Mapped(file=file, advice=mmap.MADV_RANDOM)]
    sources += [Cached(file=file, num_slots=300, make=make) for make in made.values()]
    draw = np.random.default_rng(1)
    for rows in epochs[1]:
        ids = draw.permutation(rows)
        for source in sources:
            for run in (0, 1):
                out = np.empty((len(ids), 32), np.float32)
                source.gather(ids, out, run, 0, Workspace())
                np.testing.assert_array_equal(out, table[ids])
    assert [source.file.num_reads > 0 for source in sources] == [True] * len(sources)


def test_counts_are_those_of_caches_that_were_asked(saved, epochs):
    found = counts.misses_a_row(saved, epochs, 900, [2, 1000])
    steps = [rows for epoch in epochs for rows in epoch]
    chosen = np.argsort(-np.bincount(np.concatenate(epochs[0]), minlength=2000), kind="stable")[:900]
    missed = sum((~np.isin(rows, chosen)).sum() for rows in steps)
    assert found["presampled"] == (900 + missed) / sum(map(len, steps))
    assert found["optimum of one"] <= found["optimum"] == found["plan 1000"] < found["plan 2"]
    assert found["optimum of one"] < min(found[name] for name in ("LRU", "S3-FIFO", "degree", "presampled"))


def test_an_epoch_is_cut_into_pieces_of_about_as_many_batches():
    assert [speed.piece(95, 24, call) for call in range(5)] == [
        (0, range(0, 23)), (0, range(23, 47)), (0, range(47, 71)), (0, range(71, 95)), (1, range(0, 23)),
    ]  # fmt: skip
    assert speed.piece(3, 24, 2) == (2, range(3))


def test_a_disk_is_read_by_blocks(saved, tmp_path):
    disk_path = FileRows.of(saved.x, "features").path
    disk = Disk(disk_path, 2, 0.05)
    assert disk(0) > 0
    assert len(disk.rates) == 1
    assert Disk(disk_path, 2, 0.05, 9000)(0) > 0
    (tmp_path / "short").write_bytes(b"x")
    with refused("short", "no 4096 bytes blocks", "larger data set"):
        Disk(str(tmp_path / "short"), 1, 0.05)


def check_edges(content, samplers):
    """Check the records of the edges, and those of the handover with the given samplers; they are the same for each kind of graph."""
    edges, handover = ([row for row in content["records"] if row["part"] == part] for part in ("edges", "handover"))
    assert {row["system"] for row in edges} == {"in memory", "tier", "map, MADV_RANDOM"}
    assert min(row["batches_s"] for row in edges) > 0
    assert {"min_edges_over_map", "min_edges_share_of_memory_speed"} <= set(content["summary"])
    assert {row["sampler"] for row in handover} == samplers
    assert min(row[part] for row in handover for part in ("sample_ms", "hand_ms", "take_ms", "edges")) > 0


def test_edges_and_transfer_of_several_types(tmp_path, capsys):
    draw, folder = np.random.default_rng(0), tmp_path / "hetero"
    graph = HeteroGraph.from_edges({"a": 900, "b": 600}, {("b", "to", "a"): (draw.integers(0, 600, 9000), draw.integers(0, 900, 9000))})
    HeteroDataset(graph=graph, seed_type="a", x={"b": draw.random((600, 8))}, splits={"train": np.arange(0, 900, 4)}).save(folder)
    options = ["--quick", "--graphs", str(folder), "--fanouts", "3", "2", "--batch-size", "16", "--out", str(tmp_path / "out")]
    assert main(["bench", "storage", *options]) == 0
    check_edges(json.loads((tmp_path / "out" / "results.json").read_text()), {"HeteroSampler", "HeteroLaborSampler"})
    assert list(tmp_path.glob("tmp*")) == []
    assert main(["bench", "storage", "--only", "reads", *options]) == 2
    assert "--only is reads, which needs a homogeneous graph, and " in capsys.readouterr().err


def test_all_parts_are_measured(saved, tmp_path):
    """All parts run on a homogeneous graph; of the policies, one is timed, since ``test_rows_are_those_of_the_file`` gathers with each."""
    folder = FileRows.of(saved.x, "features").path.removesuffix("/x.npy")
    options = [
        "--graphs",
        folder,
        "--fanouts",
        "3",
        "2",
        "--batch-size",
        "4",
        "--shares",
        "0.2",
        "--without",
        "map",
        "LRU",
        "degree",
        "presampled",
        "--out",
        str(tmp_path),
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads wait for each other on a busy machine
    try:
        assert main(["bench", "storage", "--quick", *options, "--train", "8"]) == 0
    finally:
        torch.set_num_threads(threads)
    content = json.loads((tmp_path / "results.json").read_text())
    summary = content["summary"]
    assert {
        "min_ratio_mmap",
        "share_of_memory_speed",
        "share_permitted",
        "misses_over_optimum",
        "reads_over_best_policy",
        "share_of_bound",
    } <= set(summary)
    assert 0 < summary["share_permitted"] <= 1
    assert summary["reads_over_best_policy"] < 1 <= summary["misses_over_optimum"]
    timed = {row["system"] for row in content["records"] if row["part"] == "speed"}
    assert timed == {"in memory", "tier", "map, MADV_RANDOM", "S3-FIFO", "disk"}
    check_edges(content, {"NeighborSampler", "LaborSampler"})
    assert list(saved.path.parent.glob("tmp*")) == []
