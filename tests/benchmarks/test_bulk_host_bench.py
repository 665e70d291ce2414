"""``hoptrain bench bulk-host`` counts the driver calls and bytes of a bulk with a stub of the CUDA driver."""

import json
import os
import subprocess
import sys

import pytest


def bench(folder, *options):
    """Run the benchmark and return its results."""
    command = [sys.executable, "-m", "hoptrain.trainers.cli", "bench", "bulk-host", *options, "--out", str(folder)]
    subprocess.run(command, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "0"}, check=True, timeout=300, cwd=folder)
    return json.loads((folder / "results.json").read_text())


def test_counts_of_a_bulk(tmp_path):
    """After warm-up a bulk allocates no memory and waits for the device once; a captured bulk is a single graph launch.

    Each batch that the loader makes of a bulk adds two launches of gather kernels.
    """
    records = bench(tmp_path, "--bulks", "2", "--rounds", "1")["records"]
    found = {(row["kernel"], row["captured"]): row for row in records}
    assert {key: row["launches"] for key, row in found.items()} == {
        ("sample", False): 32,
        ("sample", True): 0,
        ("transit", False): 53,
        ("transit", True): 0,
    }
    for (_, captured), row in found.items():
        assert (row["synchronisations"], row["allocations"]) == (1, 0)
        assert (row["replays"], row["host_to_device"], row["device_to_host"]) == ((1, 0, 0) if captured else (0, 3, 1))
        assert (row["feed_launches"], row["feed_allocations"]) == (2 + row["launches"] / 2, 3)
        assert row["feed_ms"] > 0


@pytest.mark.parametrize(
    ("options", "asks"), [("", "ask_direct"), ("--fanouts 5 5 --batch-size 64", "ask_packed")], ids=["direct", "packed"]
)
def test_bytes_of_an_epoch(options, asks, tmp_path):
    result = bench(tmp_path, "--quick", "--bulks", "2", "--device-model", "h200", *options.split())
    assert {row["what"] for row in result["records"] if row["what"].startswith("ask_")} == {asks}
    for schedule in ("sample", "transit", "auto"):
        *rows, epoch = (row for row in result["records"] if row["schedule"] == schedule)
        assert epoch["what"] == "epoch"
        for name in ("asked_bytes_edge", "moved_bytes_edge"):
            assert sum(row[name] for row in rows) == pytest.approx(epoch[name], rel=1e-6)
        assert epoch["launches"] == pytest.approx(sum(row["launches"] for row in rows) * epoch["ms"] / sum(row["ms"] for row in rows))
        assert 0 < epoch["moved_bytes_edge"] <= epoch["asked_bytes_edge"] < 1000
        assert epoch["ms"] < epoch["careful_ms"]
    assert result["summary"]["min_ms"] > 0


@pytest.mark.parametrize(
    "options",
    [
        "--graph synthetic:products --scale 0.05 --fanouts 15 10 5 --bulks 2 64",
        "--graph synthetic:reddit --scale 0.1 --fanouts 20 20 --bulks 2 30",
        "--graph synthetic:reddit --scale 0.02 --fanouts 60 60 --bulks 12",
        "--graph synthetic:products --scale 0.02 --fanouts 40 20 --bulks 20",
    ],
)
def test_the_cost_model_takes_the_schedule_of_fewer_bytes(options, tmp_path):
    """The schedule "auto" is chosen for each hop, and moves at most 0.5 % more bytes than the better fixed schedule."""
    result = bench(tmp_path, *options.split(), "--batch-size", "256", "--device-model", "h200")
    found = {(row["bulk"], row["schedule"]): row["asked_bytes_edge"] for row in result["records"] if row["what"] == "epoch"}
    for bulk in {bulk for bulk, _ in found}:
        assert found[bulk, "auto"] <= 1.005 * min(found[bulk, "sample"], found[bulk, "transit"])
        if "--fanouts 60 60" in options:
            assert found[bulk, "transit"] < found[bulk, "sample"], "there are cases of both"
