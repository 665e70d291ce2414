"""A training that measures each part of its steps, and a second training, on CUDA, under ``torch.profiler``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.callbacks import ThroughputMonitor
from hoptrain.trainers.callbacks.finite_loss import NonFiniteLossMonitor
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback

WARMUP = 5
"""Number of warm-up steps before the measured steps."""
PARTS = ("loader", "forward", "backward", "optimiser")
COUNTED = {
    "launches": ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
    "graph_launches": ("cudaGraphLaunch", "cuGraphLaunch"),
    "copies": ("cudaMemcpyAsync", "cudaMemcpy"),
    "waits": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuEventSynchronize"),
}
"""Field of a record -> names of the CUDA calls in the profile that it counts."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Setting:
    """The options of a training that ``measure`` times.

    Attributes:
        data: the data set.
        fanouts: neighbours per hop.
        batch_size: seeds of a mini-batch.
        arch: kind of the model's layers.
        hidden: width of the hidden layers.
        num_workers: number of sampler processes.
        steps: number of measured steps.
    """

    data: Dataset
    fanouts: Sequence[int]
    batch_size: int
    arch: str
    hidden: int
    num_workers: int
    steps: int


def measure(setting: Setting, device: str) -> dict[str, Any]:
    """Train on a device and return the milliseconds of each part of a step, and the counts of the profiler, which are None without CUDA.

    Raises:
        InputError: an epoch has only one step, and the first step of an epoch does not count.
    """
    clock = StepClock(setting.steps)
    _train(setting, device, clock)
    counts: dict[str, float | None] = dict.fromkeys((*COUNTED, "busy_ms", "idle_ms", "profiled_ms"))
    if device == "cuda":
        profile = StepProfile(setting.steps)
        _train(setting, device, profile)
        counts |= profile.per_step()
    return {**clock.medians(), **counts}


def _train(setting: Setting, device: str, callback: Callback) -> None:
    sampled_on = "cuda" if device == "cuda" and not setting.num_workers else "cpu"
    options: dict[str, Any] = {"batch_size": setting.batch_size, "num_workers": setting.num_workers, "sampler_device": sampled_on}
    data = NodeDataModule(setting.data, NeighborSampler(setting.fanouts), seed=SEED, **options)
    if len(data.train_dataloader()) < 2:
        raise InputError(
            f"--batch-size is {setting.batch_size}: an epoch has one step, and the first step of an epoch is not counted; give less"
        )
    torch.manual_seed(SEED)
    model = TimedClassifier(data.num_features, data.num_classes, data.num_hops, arch=setting.arch, hidden_channels=setting.hidden)
    trainer = Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        max_epochs=-1,  # train until the callback stops the run
        callbacks=[BatchTraceCallback(), ThroughputMonitor(), NonFiniteLossMonitor(), callback],
        limit_val_batches=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hides Lightning's advice
        trainer.fit(model, data)


class TimedClassifier(NodeClassifier):
    """A node classifier that records when its forward pass begins and ends.

    Attributes:
        forward_span: begin and end of the last forward pass, in seconds of ``time.perf_counter``.
    """

    forward_span = (0.0, 0.0)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Run the step and record when it begins and ends."""
        begin = time.perf_counter()
        loss = super().training_step(batch, batch_idx)
        self.forward_span = begin, time.perf_counter()
        return loss


class StepClock(Callback):
    """A callback that records the host's seconds for each part of a step, and ends the training after enough steps.

    Attributes:
        steps: a row for each step except an epoch's first: the parts in the order of ``PARTS``, and the whole step.
    """

    def __init__(self, number: int) -> None:
        """Create a clock that records ``number`` steps after ``WARMUP`` warm-up steps."""
        self.steps: list[list[float]] = []
        self._number = number
        self._last: float | None = None  # time at which the previous step of this epoch ended
        self._backward = [0.0, 0.0]
        self._stepping = [0.0, 0.0]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Register a hook that records when the optimiser ends."""
        trainer.optimizers[0].register_step_post_hook(self._on_stepped)

    def _on_stepped(self, *_: Any) -> None:
        self._stepping[1] = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Discard the end of the last step, so that the time between epochs does not count as part of a step."""
        self._last = None

    def on_before_backward(self, *_: Any) -> None:
        """Record when the backward pass begins."""
        self._backward[0] = time.perf_counter()

    def on_after_backward(self, *_: Any) -> None:
        """Record when the backward pass ends."""
        self._backward[1] = time.perf_counter()

    def on_before_optimizer_step(self, *_: Any) -> None:
        """Record when the optimiser begins."""
        self._stepping[0] = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Add the step's row, and stop after enough steps."""
        now, last = time.perf_counter(), self._last
        self._last = now
        if last is not None:
            loader: Any = trainer.train_dataloader
            spans = (loader.last_wait, pl_module.forward_span, self._backward, self._stepping)
            self.steps.append([*(end - begin for begin, end in spans), now - last])
            trainer.should_stop = len(self.steps) == WARMUP + self._number

    def medians(self) -> dict[str, float]:
        """Return the median milliseconds of each part, of the whole step and of the rest (``rest_ms``), and the number of steps."""
        rows = 1e3 * np.array(self.steps[-self._number :])
        parts, whole = rows[:, : len(PARTS)], rows[:, -1]
        found = {f"{name}_ms": float(np.median(column)) for name, column in zip(PARTS, parts.T, strict=True)}
        return {**found, "rest_ms": float(np.median(whole - parts.sum(1))), "step_ms": float(np.median(whole)), "steps": len(rows)}


class StepProfile(Callback):
    """A callback that profiles steps on CUDA after ``WARMUP`` warm-up steps."""

    def __init__(self, steps: int) -> None:
        """Create a callback that profiles ``steps`` steps."""
        self._steps, self._done, self._begin, self._seconds = steps, 0, 0.0, 0.0
        self._profile: Any = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA])

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Start the profiler after the warm-up, and stop it after the last step."""
        self._done += 1
        if self._done == WARMUP:
            torch.cuda.synchronize()
            self._profile.start()
            self._begin = time.perf_counter()
        if self._done == WARMUP + self._steps:
            torch.cuda.synchronize()
            self._seconds = time.perf_counter() - self._begin
            self._profile.stop()
            trainer.should_stop = True

    def per_step(self) -> dict[str, float]:
        """Return the profiler's counts per step."""
        return count(self._profile.events(), self._steps, self._seconds)


def count(events: Iterable[Any], steps: int, seconds: float) -> dict[str, float]:
    """Return the numbers of CUDA calls per step, and the milliseconds per step in which the GPU is busy, in which it is idle, and their sum.

    Args:
        events: events of ``torch.profiler``.
        steps: number of profiled steps.
        seconds: time of these steps.
    """
    names, spans = [], []
    for event in events:
        if event.device_type != DeviceType.CUDA:
            names.append(event.name)
        elif not event.is_user_annotation:  # an annotated range such as Optimizer.step spans kernels that have their own events
            spans.append((event.time_range.start, event.time_range.end))
    busy, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):  # kernels of different streams may overlap in time
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    calls = {what: sum(name in known for name in names) / steps for what, known in COUNTED.items()}
    whole_ms, busy_ms = 1e3 * seconds / steps, busy / 1e3 / steps
    return {**calls, "busy_ms": busy_ms, "idle_ms": max(0.0, whole_ms - busy_ms), "profiled_ms": whole_ms}
