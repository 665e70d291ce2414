"""``hoptrain bench sampler --device cuda`` measures each combination of schedule, graph placement and bulk size; here on a tiny graph."""

from functools import partial
from types import SimpleNamespace

import numpy as np
from cuda_case import needs_cuda

from hoptrain.benchmarks.cases import sampler_cuda
from hoptrain.benchmarks.common import rounds
from hoptrain.benchmarks.traffic.predict import device_named
from hoptrain.engine import Dataset
from hoptrain.engine.device import is_simulated
from hoptrain.kernels.cuda.thresholds import Thresholds
from hoptrain.samplers import Workspace


def with_thresholds(thresholds, **options):
    workspace = Workspace(**options)
    workspace.on_device.thresholds = thresholds
    return workspace


@needs_cuda
def test_device_grid(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_cuda, "COPY_BYTES", 1 << 10)
    monkeypatch.setattr(sampler_cuda, "WARMUP", 0)
    monkeypatch.setattr(rounds, "WARMUP", 0)
    if is_simulated():  # the simulator runs every CUDA thread as a Python thread
        small = Thresholds(block=4, max_blocks=1)
        monkeypatch.setattr(sampler_cuda, "THRESHOLDS", small)
        monkeypatch.setattr(sampler_cuda, "Workspace", partial(with_thresholds, small))
        monkeypatch.setattr(sampler_cuda, "this_device", partial(device_named, "h200"))
    data = Dataset(name="small", graph=graph, x=np.ones((200, 3), np.float32), splits={"train": np.arange(4)})
    data.save(tmp_path / "small")
    args = SimpleNamespace(
        graphs=[str(tmp_path / "small")], fanouts=[(2,)], batch_size=[2], modes=["all"], bulks=[1, 2],
        replace=False, rounds=1, quick=True, scale=None, root=None, bandwidth=1000,
    )  # fmt: skip
    result = sampler_cuda.measure(args)
    rows = [(row["what"], row.get("kernel"), row["memory"], row.get("bulk")) for row in result.records]
    bulks = [("bulk", kernel, "device", bulk) for bulk in (1, 2) for kernel in ("auto", "sample", "transit")]
    gathers = [("gather", None, memory, None) for memory in ("device", "pinned")]
    assert rows == [*bulks, ("bulk", "auto", "pinned", 2), ("epoch", "auto", "device", 2), *gathers]
    assert [row["by"] for row in result.records[-2:]] == ["Numba"] * 2
    assert all(row["host_s"] > 0 and "device_s" in row for row in result.records if row["what"] == "bulk")
    assert all(row["floor_share"] > 0 for row in result.records if row["what"] == "bulk")
    predicted = [row for row in result.records if "predicted_s" in row]
    assert [row["kernel"] for row in predicted] == ["auto", "sample", "transit"] * 2
    assert all(0 < row["predicted_s"] <= row["careful_s"] for row in predicted)
    assert result.summary.keys() >= {
        "max_epoch_s_small", "min_gather_copy_share_device", "min_gather_copy_share_pinned", "max_medges_s_transit", "max_medges_s_pinned",
        "max_host_share_auto",
    }  # fmt: skip
