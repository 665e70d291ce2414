"""``hoptrain bench rows`` compares two ways to compute the input of the first product, and both compute the same."""

import json

import numpy as np
import pytest

from hoptrain import NeighborSampler, SampleLoader, Workspace, load_dataset
from hoptrain.benchmarks.rows import count, ways
from hoptrain.benchmarks.rows.steps import training
from hoptrain.trainers.cli import main


def test_both_ways_compute_the_same_rows():
    data = load_dataset("digits-knn")
    batch = next(iter(SampleLoader(data, NeighborSampler([5, 5]), batch_size=64))).to("cpu")
    x = np.ascontiguousarray(data.x, np.float32)
    gathered, from_table = ways(batch, x, Workspace())
    expected = [rows.copy() for rows in gathered()]
    found = from_table()
    assert all(np.array_equal(*pair) for pair in zip(expected, found, strict=True))
    assert np.array_equal(found[1], x[batch.node_ids[: batch.blocks[0].num_dst]])
    sizes, row = count(batch, x), x[:1].nbytes / 1e6
    assert sizes["gathered_mb"] - sizes["table_mb"] == pytest.approx(2 * sizes["sources"] * row)
    assert sizes["table_mb"] == pytest.approx((sizes["edges"] + 3 * sizes["destinations"]) * row)


def test_both_trainings_have_the_same_losses():
    data, losses = load_dataset("synthetic:products", scale=0.002), []
    for from_table in (False, True):
        step = training(data, [2, 2], 64, 128, from_table)
        losses.append([step() for _ in range(4)])
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_the_command_reports_both_times(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--quick", "--graphs", "synthetic:products", "--scale", "0.002", "--batch-size", "64", "--threads", "1", "--hidden", "8"]
    assert main(["bench", "rows", *options, "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "results.json").read_text())
    (row,) = result["records"]
    assert (row["graph"], row["threads"], row["features"]) == ("synthetic:products", 1, 100)
    assert min(row["gathered_ms"], row["table_ms"], row["ratio"], row["step_gathered_ms"], row["step_table_ms"], row["step_ratio"]) > 0
    assert result["summary"] == {"products_ratio_1": row["ratio"]}
