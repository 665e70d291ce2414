"""Driver calls of a training step with sampling on CUDA, in Lightning's loop with the callbacks of ``hoptrain fit``."""

import json
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import tested_blocks  # noqa: F401
from pytorch_lightning import Callback, Trainer

from hoptrain.engine import Dataset
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.callbacks import ThroughputMonitor
from hoptrain.trainers.callbacks.finite_loss import NonFiniteLossMonitor
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback
from hoptrain.trainers.cli import main
from host_layer.record import Record, read

pytestmark = [pytest.mark.usefixtures("tested_blocks"), pytest.mark.filterwarnings("ignore")]  # Lightning's advice

BULKS = 48 // 8
"""Number of bulks in an epoch."""
EVENTS = 2
"""Events that a step waits for on the device: its batch, and copies to the device, of which there are none."""
LAUNCHES = {("sage", 1): 47, ("sage", 2): 62, ("gcn", 2): 103, ("gin", 2): 79, ("gat", 2): 193, ("gatv2", 2): 193}
"""Maximum number of kernels in a step, without those that gather rows, by (layers, number of hops)."""
GATHERED = 2
COPIES = {"gat": 24, "gatv2": 23}
"""Maximum number of asynchronous copies in a step, by layers; 18 with others."""


class EachStep(Callback):
    """A callback that records driver calls from the end of one step to the end of the next, except for an epoch's first step."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._last: Record | None = None

    def on_train_epoch_start(self, *_):
        self._last = None

    def on_train_batch_end(self, *_):
        now = read()
        if self._last is not None:
            self.records.append(Record(now.counts - self._last.counts))
        self._last = read()


@pytest.fixture(scope="module")
def data() -> Dataset:
    graph, rng = make_graph(), np.random.default_rng(1)
    x, y = rng.random((graph.num_nodes, 7), dtype=np.float32), rng.integers(0, 9, graph.num_nodes)
    return Dataset(name="random", graph=graph, x=x, y=y, splits={"train": np.arange(192)}, num_classes=9)


@pytest.fixture(params=LAUNCHES, ids=lambda of: f"{of[0]}-{of[1]}")
def model(request):
    return request.param


@pytest.fixture(scope="module")
def steps_of(data: Dataset) -> Callable[[str, int], list[Record]]:
    """Return a function that trains each model once."""
    return cache(partial(train, data))


def train(data: Dataset, arch: str, hops: int) -> list[Record]:
    """Train three epochs of 48 steps; return the records of the last epoch, whose bulks are replayed CUDA graphs."""
    module = NodeDataModule(data, NeighborSampler([5] * hops), seed=1, batch_size=4, num_workers=0, sampler_device="cuda", bulk=8)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch=arch, hidden_channels=16)
    each = EachStep()
    trainer = Trainer(
        accelerator="gpu", devices=1, max_epochs=3, callbacks=[BatchTraceCallback(), ThroughputMonitor(), NonFiniteLossMonitor(), each], limit_val_batches=0,
        use_distributed_sampler=False, logger=False, log_every_n_steps=1000, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, module)
    assert len(each.records) == 3 * 47
    return each.records[2 * 47 :]


def test_a_step_of_fit(steps_of, model):
    """A training step waits only for the end of a bulk, and copies nothing from pageable memory."""
    steps = steps_of(*model)
    assert {step.memory for step in steps} == {0}
    assert {sum(step.of("pageable").values()) for step in steps} == {0}
    began = [step.calls("cuGraphLaunch") for step in steps]
    waits = [step.of("wait").get("cuStreamSynchronize", 0) for step in steps]
    assert {step.of("wait").get("cuEventSynchronize") for step in steps} == {1}, "for the training eight steps back, which is done by then"
    assert sum(began) == BULKS - 2, "two begin before an epoch's first step ends"
    assert (sum(waits), min(waits), max(waits)) == (BULKS - 1, 0, 1), "a step waits if it is the first one of a bulk"
    assert {step.calls("cuStreamWaitEvent") - bulks for step, bulks in zip(steps, began, strict=True)} == {EVENTS}


def test_launches_of_a_step(steps_of, model):
    steps = steps_of(*model)
    assert max(step.launches for step in steps) <= LAUNCHES[model] + GATHERED, steps[0].of("launch")
    assert max(step.copies for step in steps) <= COPIES.get(model[0], 18)


def test_the_benchmark_of_a_step_runs(tmp_path, monkeypatch):
    """``hoptrain bench step`` runs and times all parts of a step; the profiler sees nothing of an emulated device."""
    monkeypatch.chdir(tmp_path)
    options = ["--quick", "--devices", "cuda", "--steps", "4", "--scale", "0.002", "--batch-size", "8"]
    assert main(["bench", "step", *options, "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "results.json").read_text())["records"]
    assert (row["device"], row["steps"]) == ("cuda", 4)
    assert all(row[f"{part}_ms"] > 0 for part in ("loader", "forward", "backward", "optimiser", "step"))
