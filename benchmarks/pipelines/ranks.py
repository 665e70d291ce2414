"""Training in one process of ``hoptrain bench pipeline``: trains the same ViG with and without a pipeline and records times, losses and memory."""

from __future__ import annotations

import copy
import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.benchmarks.common.processes import memory
from hoptrain.engine.datasets.images.load import ImageSet, load_images
from hoptrain.engine.schedule import Schedule
from hoptrain.trainers.models.vig.gnn import ViG
from hoptrain.trainers.pipeline import Chunk, Pipeline, Plan

Way: TypeAlias = tuple[str, int]
"""A way to train on a batch, and its number of chunks. ``whole`` (one chunk) and ``chunked`` (chunks one after another) use no pipeline; ``piped`` uses one."""

WHOLE: Way = ("whole", 1)
SEED = 1
BLOCKS = 8
_GRADIENT_IMAGES = 20
"""Maximum number of images in a batch whose gradients are compared; it is small, since double precision is slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A launch of ``stages * data`` processes, and the ways to train that they measure.

    Attributes:
        stages: number of pipeline stages, over which each model replica (a *copy*) is split.
        data: number of model replicas, which share a batch.
        chunks: numbers of chunks into which a replica's share of a batch is divided; each number is measured.
        images: images of a step, over all replicas.
        rounds: measured steps, after one of warm-up.
        schedule: pipeline schedule, the order of a stage's forward and backward passes.
    """

    stages: int
    data: int
    chunks: tuple[int, ...]
    images: int
    rounds: int
    schedule: Any = "1f1b"

    def alone(self, chunks: int) -> Way:
        """Return the way in which a single process trains on the chunks of all replicas, one after another. Chunks have the same size as in the pipeline."""
        return "chunked", chunks * self.data

    def plan(self, chunks: int) -> Plan:
        """Return a plan with equally many blocks a stage; stem and head, which cost next to nothing, go to the first and the last stage."""
        counts = [BLOCKS // self.stages] * self.stages
        counts[0] += 1
        counts[-1] += 1
        return Plan(stages=self.stages, data=self.data, chunks=chunks, schedule=self.schedule, balance=tuple(counts))


@dataclass(kw_only=True, slots=True)
class Track:
    """A record of the measurements of one way to train, in one process. Its lists have one entry per step.

    Attributes:
        seconds: time of a whole step, including the optimiser.
        pipe_seconds: time of the forward and backward steps of all chunks.
        busy_s: the part of ``pipe_seconds`` in which the process computed.
        losses: this replica's part of the batch's loss.
        waste: share of the sent rows that was padding.
        gradient_error: largest deviation from the whole batch's gradient in double precision, relative to the largest gradient of the parameter.
        peak_mb: peak growth of the process in megabytes by weights, gradients and activations; None if Linux does not report it.
    """

    seconds: list[float] = field(default_factory=list)
    pipe_seconds: list[float] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    waste: float = 0.0
    gradient_error: float = 0.0
    peak_mb: float | None = None


def study(launch: Launch) -> dict[Way, Track]:
    """Measure every way to train, each with its own model on the same batches.

    A round is one step of each way, in an order that rotates. Ways without a pipeline run on rank 0, while the other processes wait.
    """
    data = load_images("digits")
    ways = [WHOLE, *(way for chunks in launch.chunks for way in (launch.alone(chunks), ("piped", chunks)))]
    tracks = {way: Track() for way in ways}
    for way in ways:
        if way[0] == "piped":
            tracks[way].gradient_error = _gradient_error(launch.plan(way[1]), min(launch.images, _GRADIENT_IMAGES), data)
        if way[0] != "chunked" and (way[0] == "piped" or torch.distributed.get_rank() == 0):
            tracks[way].peak_mb = _peak_mb(launch, way, data)
    trainings = {way: _training(launch, way, tracks[way]) for way in ways}
    for number, batch in enumerate(batches_of(data, launch.images, launch.rounds + 1)):
        shift = number % len(ways)
        for way in ways[shift:] + ways[:shift]:
            torch.distributed.barrier()
            trainings[way].step(*batch, is_counted=number > 0)
    return tracks


def make_model() -> ViG:
    """Return a ViG of the blocks of Raffi 2024 (138,258 parameters each) for 8 x 8 pixels; every block builds its own nearest-neighbour graph."""
    torch.manual_seed(SEED)
    return ViG((8, 8, 1), 10, patch=1, width=3, conv_width=256, ffn_width=512, head_width=1024, num_blocks=BLOCKS, conv="sum", norm="group")


def batches_of(data: ImageSet, size: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``count`` batches of images (size, 8, 8, 1) float32 and classes (size,), the same in every process."""
    schedule = Schedule(items=data.splits["train"], batch_size=size, seed=SEED)
    for number in range(count):
        epoch, step = divmod(number, schedule.num_steps - 1)  # without the last step, which may be smaller
        items = schedule.batch_items(epoch, step)
        yield torch.from_numpy(np.take(data.x, items, axis=0)).float() / data.white * 2 - 1, torch.from_numpy(data.y[items])


class _Alone:
    """A training without a pipeline, on rank 0: one chunk after another."""

    def __init__(self, chunks: int, images: int, track: Track) -> None:
        self.chunks, self.track = chunks, track
        self.loss = _share_of(images)
        self.model = make_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, x: Tensor, y: Tensor, *, is_counted: bool) -> None:
        if torch.distributed.get_rank():
            return
        begin, total = time.perf_counter(), 0.0
        self.optimizer.zero_grad()
        for part in np.array_split(np.arange(len(y)), self.chunks):
            loss = self.loss(self.model(x[part]), y[part])
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self.optimizer.step()
        if is_counted:
            self.track.seconds.append(time.perf_counter() - begin)
        self.track.losses.append(total)


class _Piped:
    """A training with hoptrain's ``Pipeline``, with the same interface as ``_Alone``."""

    def __init__(self, plan: Plan, images: int, track: Track) -> None:
        self.track, self.plan, self.images = track, plan, images
        self.model = make_model()
        self.pipeline = Pipeline(self.model, plan, _share_of(images), bound=-(-images // (plan.data * plan.chunks)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, x: Tensor, y: Tensor, *, is_counted: bool) -> None:
        chunks = chunks_of(self.model.num_layers, self.plan, self.pipeline.copy, x, y)
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        step = self.pipeline.step(chunks)
        self.optimizer.step()
        if is_counted:
            self.track.seconds.append(time.perf_counter() - begin)
            self.track.pipe_seconds.append(step.seconds)
            self.track.busy_s.append(step.busy_s)
        self.track.losses.append(step.loss)
        self.track.waste = self.pipeline.capacities.waste


def _share_of(images: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a loss function that computes a chunk's contribution to the mean loss over ``images`` images."""
    return lambda logits, y: F.cross_entropy(logits, y, reduction="sum") / images


def _training(launch: Launch, way: Way, track: Track) -> _Alone | _Piped:
    kind, chunks = way
    return _Piped(launch.plan(chunks), launch.images, track) if kind == "piped" else _Alone(chunks, launch.images, track)


def chunks_of(num_layers: int, plan: Plan, copy_number: int, x: Tensor, y: Tensor) -> list[Chunk]:
    """Return the chunks of a replica's share of the batch; their sizes differ by at most one image."""
    mine = np.array_split(np.arange(len(y)), plan.data)[copy_number]
    return [
        Chunk(rows=(len(part),) * (num_layers + 1), inputs=((),) * num_layers, x=x[part], target=y[part])
        for part in np.array_split(mine, plan.chunks)
    ]


def _gradient_error(plan: Plan, images: int, data: ImageSet) -> float:
    """Return the largest deviation, in double precision, of this stage's gradients from those of the whole batch without a pipeline."""
    x, y = next(batches_of(data, images, 1))
    model = make_model().double()
    whole = copy.deepcopy(model)
    F.cross_entropy(whole(x.double()), y).backward()  # type: ignore[no-untyped-call]
    pipeline = Pipeline(model, plan, _share_of(len(y)))
    pipeline.step(chunks_of(model.num_layers, plan, pipeline.copy, x.double(), y))
    expected = dict(whole.named_parameters())
    errors = []
    for name, parameter in model.named_parameters():
        wanted, found = expected[name].grad, parameter.grad
        if wanted is None or found is None:
            raise RuntimeError(f"the parameter {name} has no gradient to compare")
        errors.append(float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-300)))
    return max(errors)


def _peak_mb(launch: Launch, way: Way, data: ImageSet) -> float | None:
    """Return the peak growth of this process's memory, in megabytes, while it builds the model and trains two steps."""
    with suppress(OSError):
        batches = list(batches_of(data, launch.images, 2))
        begin = _forget_peak()
        training = _training(launch, way, Track())
        for batch in batches:
            training.step(*batch, is_counted=False)
        return (memory([psutil.Process()])["peak_rss"] - begin) / 1e6
    return None


def _forget_peak() -> int:
    """Give freed memory back to the system and reset the recorded memory peak. Return the resident bytes."""
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory([psutil.Process()])["peak_rss"]
