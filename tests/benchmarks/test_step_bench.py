"""``hoptrain bench step`` measures the parts of a training step and counts the events of a profile."""

import json
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from hoptrain.benchmarks.step.timed import COUNTED, PARTS, StepClock, count
from hoptrain.trainers.cli import main


@pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run
def test_parts_of_a_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "step", "--quick", "--devices", "cpu", "--steps", "4", "--scale", "0.002", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "results.json").read_text())
    (row,) = result["records"]
    assert row["steps"] == 4
    assert all(0 < row[f"{part}_ms"] < row["step_ms"] for part in (*PARTS, "rest"))
    assert {row[name] for name in COUNTED} == {None}
    assert result["summary"] == {"cpu_step_ms": row["step_ms"], "cpu_rest_ms": row["rest_ms"]}


def test_the_rest_is_what_no_part_has():
    clock = StepClock(2)
    clock.steps = [[9.0] * 5, [0.001, 0.002, 0.003, 0.004, 0.015], [0.001, 0.002, 0.003, 0.004, 0.015]]
    found = clock.medians()
    assert found.pop("steps") == 2
    assert found == pytest.approx({"loader_ms": 1, "forward_ms": 2, "backward_ms": 3, "optimiser_ms": 4, "rest_ms": 5, "step_ms": 15})


def test_a_gpu_is_busy_once_where_streams_overlap():
    def event(name, begin, end, device=DeviceType.CUDA, is_user_annotation=False):
        return SimpleNamespace(
            name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=end), is_user_annotation=is_user_annotation
        )

    host = DeviceType.CPU
    events = [
        event("a kernel", 0, 1000),
        event("another stream's", 500, 2000),
        event("within it", 600, 700),
        event("a later one", 3000, 4000),
        event("Optimizer.step#Adam.step", 0, 9000, is_user_annotation=True),
        event("cudaLaunchKernel", 0, 1, host),
        event("cudaLaunchKernelExC", 0, 1, host),
        event("cuGraphLaunch", 0, 1, host),
        event("cudaStreamSynchronize", 0, 1, host),
        event("aten::mm", 0, 1, host),
    ]
    assert count(events, steps=2, seconds=0.01) == pytest.approx(
        {"launches": 1, "graph_launches": 0.5, "copies": 0, "waits": 0.5, "busy_ms": 1.5, "idle_ms": 3.5, "profiled_ms": 5}
    )


@pytest.mark.parametrize(
    ("options", "said"), [("--steps 0", "--steps is 0"), ("--batch-size 100000 --scale 0.002", "--batch-size is 100000")]
)
def test_nothing_to_time(options, said, tmp_path, capsys):
    assert main(["bench", "step", "--quick", "--devices", "cpu", *options.split(), "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
