"""What a bulk asks of the host, with the driver's calls replaced by nothing."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.long
def test_counts_of_a_bulk(tmp_path):
    """No allocation in a steady state, one wait; launch for launch, or all in one call."""
    command = [sys.executable, "-m", "hoptrain.trainers.cli", "bench", "bulk-host", "--bulks", "2", "--rounds", "1", "--out", str(tmp_path)]
    subprocess.run(command, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "0"}, check=True, timeout=300, cwd=tmp_path)
    records = json.loads((tmp_path / "results.json").read_text())["records"]
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
