"""The benchmark of several machines: what it counts is the fewest, and a cache sends less than none."""

import json

from hoptrain.trainers.cli import main


def test_counts(tmp_path):
    options = ("--quick", "--only", "counts", "--scale", "0.0005", "--machines", "2", "--methods", "range", "--batch-size", "4")
    assert main(["bench", "machines", *options, "--shares", "0", "0.2", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    none, cached = found["records"]
    assert none["rounds"] == none["windows"] + 2  # one more in each of two epochs
    assert cached["sent"] < none["sent"] < none["unplanned"]
    heads = 2 * none["rounds"] * 8
    assert none["sent"] == none["minimum"] + heads
    assert found["summary"]["bytes_over_minimum"] < 1.02
    for record in found["records"]:
        assert record["optimum"] <= record["sent"] < 1.2 * record["optimum"]
    assert found["summary"]["bytes_over_optimum"] == max(record["sent"] / record["optimum"] for record in found["records"])
    assert found["summary"]["bytes_saved_by_cache"] == none["unplanned"] / cached["sent"]


def test_bad_input(tmp_path, capsys):
    assert main(["bench", "machines", "--machines", "3", "--out", str(tmp_path)]) == 2
    assert "machines are [3]: 4 ranks are shared out among 2 or 4; choose of these" in capsys.readouterr().err
