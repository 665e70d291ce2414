"""The page with GPU results shows the values of its record."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PAGE = (RESULTS / "gpu_16-core-xeon-h200_2026-11-26.md").read_text()
RECORD = json.loads((RESULTS / "nvidia-h200_sampler.json").read_text())
TIMES = ("seconds", "host_s", "device_s", "predicted_s", "careful_s")


def row_of(record):
    """Return a record as a row of its table."""
    if record["what"] == "gather":
        cells = [record["memory"], record["by"], f"{record['gb_s']:,.0f}", f"{100 * record['copy_share']:.0f} %"]
    else:
        cells = [record["what"], record["kernel"], record["memory"], str(record["bulk"])]
        cells += [f"{record['batches_s']:,.0f}", f"{record['medges_s']:,.0f}"]
        cells += [f"{1e3 * record[time]:.2f}" if time in record else "" for time in TIMES] + [f"{100 * record['spread']:.0f} %"]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("number", range(len(RECORD["records"])))
def test_each_measurement_is_a_row(number):
    assert row_of(RECORD["records"][number]) in PAGE.splitlines()


def test_the_page_names_command_and_commit():
    assert RECORD["command"].partition(" --out")[0] in PAGE.splitlines()
    assert f"commit {RECORD['commit'][:7]}" in PAGE
