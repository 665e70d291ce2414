"""What a bulk asks of the host, with the driver's calls replaced by nothing."""

import json
import os
import subprocess
import sys

import pytest


def bench(folder, *options):
    """The results of a run."""
    command = [sys.executable, "-m", "hoptrain.trainers.cli", "bench", "bulk-host", *options, "--out", str(folder)]
    subprocess.run(command, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "0"}, check=True, timeout=300, cwd=folder)
    return json.loads((folder / "results.json").read_text())


@pytest.mark.long
def test_counts_of_a_bulk(tmp_path):
    """No allocation in a steady state, one wait; launch for launch, or all in one call."""
    records = bench(tmp_path, "--bulks", "2", "--rounds", "1")["records"]
    found = {(row["kernel"], row["captured"]): row for row in records}
    assert {key: row["launches"] for key, row in found.items()} == {
        ("sample", False): 40,
        ("sample", True): 0,
        ("transit", False): 61,
        ("transit", True): 0,
    }
    for (_, captured), row in found.items():
        assert (row["synchronisations"], row["allocations"]) == (1, 0)
        assert (row["replays"], row["host_to_device"], row["device_to_host"]) == ((1, 0, 0) if captured else (0, 3, 1))


@pytest.mark.long
def test_bytes_of_an_epoch(tmp_path):
    result = bench(tmp_path, "--quick", "--bulks", "2", "--device-model", "h200")
    for schedule in ("sample", "transit", "auto"):
        *rows, epoch = (row for row in result["records"] if row["schedule"] == schedule)
        assert epoch["what"] == "epoch"
        for name in ("asked_bytes_edge", "moved_bytes_edge"):
            assert sum(row[name] for row in rows) == pytest.approx(epoch[name], rel=1e-6)
        assert epoch["launches"] == pytest.approx(sum(row["launches"] for row in rows) * epoch["ms"] / sum(row["ms"] for row in rows))
        assert 0 < epoch["moved_bytes_edge"] <= epoch["asked_bytes_edge"] < 1000
        assert epoch["ms"] < epoch["careful_ms"]
    assert result["summary"]["min_ms"] > 0
