"""``hoptrain bench thresholds`` tries the expected values of each threshold and reports the fastest ones."""

from dataclasses import asdict, replace

import numpy as np
from cuda_case import needs_cuda

from hoptrain.benchmarks import thresholds
from hoptrain.benchmarks.common import rounds
from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import Dataset
from hoptrain.kernels.cuda import thresholds as table
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.bench import option_parser


def parse(*options):
    return option_parser("thresholds", "?", thresholds).parse_args(options)


def test_candidates_are_other_values_of_numbers_that_there_are():
    own = asdict(table.THRESHOLDS)
    for numbers in thresholds.CANDIDATES.values():
        assert numbers.keys() <= own.keys()
        assert all(own[name] not in values and len(set(values)) == len(values) for name, values in numbers.items())


def test_candidates_fit_a_launch():
    for numbers in thresholds.CANDIDATES.values():
        for name, values in numbers.items():
            for value in values:
                tried = replace(table.THRESHOLDS, **{name: value})
                assert max(tried.scan_bytes, tried.warp_stage_bytes, tried.block_stage_bytes) < 48 * 1024
                assert tried.block % 32 == 0


def test_no_device_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.device.cuda_status", lambda: "no CUDA device can be used")
    assert main(["bench", "thresholds", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "hoptrain: bench thresholds: no CUDA device can be used; run it on a machine with a GPU\n"


@needs_cuda
def test_each_candidate_is_timed_beside_its_own_value(graph, tmp_path, monkeypatch):
    from hoptrain.benchmarks.cases.bulk_times import TimedBulks

    Dataset(name="small", graph=graph, x=np.ones((200, 3), np.float32), splits={"train": np.arange(6)}).save(tmp_path / "small")
    monkeypatch.setattr(thresholds, "CANDIDATES", {"sample": {"block": (8,)}, "transit": {"block": (8,), "thread_work": (2, 3)}})
    monkeypatch.setattr(table, "THRESHOLDS", table.Thresholds(block=4, max_blocks=2))
    monkeypatch.setattr(rounds, "WARMUP", 0)
    sampled, timed = [], TimedBulks.__call__

    def sample(bulks, call):
        workspace = bulks.workspace
        sampled.append((workspace.kernel, workspace.on_device.thresholds.block, workspace.on_device.thresholds.thread_work))
        return timed(bulks, call)

    monkeypatch.setattr(TimedBulks, "__call__", sample)
    options = ("--graph", str(tmp_path / "small"), "--fanouts", "2", "--batch-size", "3", "--bulk", "2", "--rounds", "1")
    result = thresholds.run(parse(*options))
    assert isinstance(result, Result)
    assert [(row["schedule"], row["number"], row["value"], row["own"]) for row in result.records] == [
        ("sample", "block", 8, 4), ("transit", "block", 8, 4), ("transit", "thread_work", 2, 4), ("transit", "thread_work", 3, 4),
    ]  # fmt: skip
    assert set(sampled) == {("sample", 4, 4), ("sample", 8, 4), ("transit", 4, 4), ("transit", 8, 4), ("transit", 4, 2), ("transit", 4, 3)}
    best = max(row["ratio"] for row in result.records[2:])
    assert result.summary["max_ratio_transit_thread_work"] == best
