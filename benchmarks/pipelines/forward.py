"""Prediction in one process of ``hoptrain bench pipeline``: consecutive batches go through the stages of a pipeline, then through a single process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hoptrain.benchmarks.pipelines.ranks import Launch, batches_of, chunks_of, make_model
from hoptrain.engine.datasets.images.load import load_images
from hoptrain.trainers.models.layered import Chunk, apply_layers
from hoptrain.trainers.pipeline.forward import Forward

BATCHES = 8
"""Number of consecutive batches in a round."""


@dataclass(kw_only=True, slots=True)
class Flow:
    """A record of one process's measurements. Its lists have one entry per round.

    Attributes:
        piped_s: seconds of all batches through the pipeline.
        alone_s: seconds of all batches through a single process.
        piped_latency_s: seconds of one batch through the pipeline.
        alone_latency_s: seconds of one batch through a single process.
        difference: largest difference between the logits of the pipeline and of a single process; 0 except in the last stage.
    """

    piped_s: list[float] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)
    piped_latency_s: list[float] = field(default_factory=list)
    alone_latency_s: list[float] = field(default_factory=list)
    difference: float = 0.0


@torch.no_grad()
def flow(launch: Launch, chunks: int) -> Flow:
    """Measure the pipeline and a single process in turn, after a round of warm-up.

    Every process has the whole model; rank 0 is the single process.
    """
    plan, model, found = launch.plan(chunks), make_model().eval(), Flow()
    batches = [chunks_of(model.num_layers, plan, 0, x, y) for x, y in batches_of(load_images("digits"), launch.images, BATCHES)]
    stages = Forward(model, plan.runs(model.num_layers), plan.mesh(), plan.chunks)

    def piped(some: Sequence[Chunk]) -> list[Tensor]:
        outputs = stages(some)
        stages.finish()
        return outputs

    def alone(some: Sequence[Chunk]) -> list[Tensor]:
        return [_whole(model, chunk) for chunk in some] if torch.distributed.get_rank() == 0 else []

    every = [chunk for batch in batches for chunk in batch]
    for number in range(launch.rounds + 1):
        times = [_seconds(way, some) for some in (every, batches[0]) for way in (piped, alone)]
        if number:
            for seconds, name in zip(times, ("piped_s", "alone_s", "piped_latency_s", "alone_latency_s"), strict=True):
                getattr(found, name).append(seconds)
    outputs = piped(every)
    found.difference = max(
        (float((out - _whole(model, chunk)).abs().max()) for out, chunk in zip(outputs, every, strict=False)), default=0.0
    )
    return found


def _whole(model: Any, chunk: Chunk) -> Tensor:
    x = chunk.x
    if x is None:
        raise RuntimeError("a chunk has no images: a single process needs them in every chunk")
    return apply_layers(model, chunk, range(model.num_layers), x)


def _seconds(way: Callable[[Sequence[Chunk]], list[Tensor]], chunks: Sequence[Chunk]) -> float:
    torch.distributed.barrier()
    begin = time.perf_counter()
    way(chunks)
    return time.perf_counter() - begin
