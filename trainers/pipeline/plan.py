"""The plan of a pipeline: stages, model copies, chunks, and the schedule of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from hoptrain.engine import InputError

Order = Literal["gpipe", "1f1b", "interleaved-1f1b"]
_RUNS_OF_A_STAGE = 2
"""Number of runs of layers per stage in an interleaved schedule, unless ``balance`` is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A plan of ``data`` model copies (replicas), each divided into ``stages``; a batch passes through a copy in ``chunks``.

    Rank r is stage ``r % stages`` of copy ``r // stages``. A stage has one run of consecutive layers. With ``interleaved-1f1b`` it has several: the first
    runs of all stages come first, then the second runs of all stages, and so on.

    Attributes:
        stages: number of stages per copy, each in one process.
        data: number of model copies; each has its own batches, and gradients are summed over copies.
        chunks: number of chunks per batch of a copy.
        schedule: gpipe (all forward passes before all backward passes; keeps every chunk's activations), 1f1b (one forward, one backward), or
            interleaved-1f1b (the same with several runs of layers per stage: smaller bubble, more traffic).
        balance: number of layers of each run, in the model's order; None for numbers that differ by at most one.
    """

    stages: int = 1
    data: int = 1
    chunks: int = 1
    schedule: Order = "1f1b"
    balance: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("stages", "data", "chunks"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: it must be at least 1; give 1 or more")
        if self.schedule not in ("gpipe", "1f1b", "interleaved-1f1b"):
            raise InputError(f"schedule is {self.schedule!r}: it must be gpipe, 1f1b or interleaved-1f1b; choose one")
        if self.balance is None:
            return
        runs, counts = len(self.balance), list(self.balance)
        if min(counts, default=0) < 1:
            raise InputError(
                f"balance {counts} leaves a stage empty: every stage needs a layer; give {self.stages} or more positive numbers"
            )
        if self.is_interleaved and (runs % self.stages or runs == self.stages):
            raise InputError(
                f"balance {counts} for {self.stages} interleaved stages: each must have the same number of runs of layers, at least two; "
                f"give {2 * self.stages} numbers, or a larger multiple of {self.stages}"
            )
        if not self.is_interleaved and runs != self.stages:
            raise InputError(f"balance {counts} for {self.stages} stages: give each its number of layers, {self.stages} numbers")

    @property
    def is_interleaved(self) -> bool:
        """True if a stage has several runs of layers."""
        return self.schedule == "interleaved-1f1b"

    @property
    def world_size(self) -> int:
        """Number of processes of all copies."""
        return self.data * self.stages

    @property
    def num_runs(self) -> int:
        """Number of runs of layers."""
        if self.balance is not None:
            return len(self.balance)
        return self.stages * (_RUNS_OF_A_STAGE if self.is_interleaved else 1)

    @property
    def num_slots(self) -> int:
        """Number of chunks in the schedule including empty ones: 1f1b needs at least ``stages`` chunks, interleaved-1f1b a multiple of ``stages``."""
        if self.schedule == "gpipe":
            return self.chunks
        if self.schedule == "1f1b":
            return max(self.chunks, self.stages)
        slots = self.chunks
        while slots % max(1, slots // self.stages):
            slots += 1
        return slots

    def runs(self, num_layers: int) -> list[range]:
        """Return the layers of each run; run r belongs to stage ``r % stages``.

        Raises:
            InputError: there are fewer layers than runs, or ``balance`` has another number of layers.
        """
        if num_layers < self.num_runs:
            raise InputError(
                f"{num_layers} layers for {self.num_runs} runs of layers ({self.stages} stages, {self.schedule}): a stage would be empty; "
                f"use fewer stages{', another schedule' if self.is_interleaved else ''} or a deeper model"
            )
        if self.balance is not None and sum(self.balance) != num_layers:
            raise InputError(
                f"balance {list(self.balance)} is for {sum(self.balance)} layers, the model has {num_layers}: give {num_layers} in total"
            )
        share, extra = divmod(num_layers, self.num_runs)
        counts = self.balance or [share + (run < extra) for run in range(self.num_runs)]
        ends = [sum(counts[: run + 1]) for run in range(len(counts))]
        return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]

    def balanced(self, seconds: Sequence[float]) -> Plan:
        """Return the plan with the balance that minimises the time of the slowest run, from the layers' times.

        If several balances are equally good, return the one with the shortest first runs.
        """
        self.runs(len(seconds))
        return replace(self, balance=tuple(_even_counts(list(seconds), self.num_runs)))

    def mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """Return the device mesh (data, stages) of the processes. torch.distributed must be initialised.

        Raises:
            InputError: the number of processes is not ``data * stages``.
        """
        self.check_world(torch.distributed.get_world_size())
        return init_device_mesh(device_type, (self.data, self.stages), mesh_dim_names=("data", "stages"))

    def check_world(self, world_size: int) -> None:
        """Raise InputError if the number of processes does not match the plan.

        Raises:
            InputError: the number of processes is not ``data * stages``.
        """
        if world_size != self.world_size:
            raise InputError(
                f"{world_size} processes for data {self.data} x stages {self.stages}: start {self.world_size} (trainer.devices), "
                "or change data or stages"
            )


def _even_counts(seconds: list[float], num_runs: int) -> list[int]:
    """Divide the layers into ``num_runs`` runs of consecutive layers, so that the longest run takes the least time. Return the runs' lengths."""
    total = [0.0]
    for each in seconds:
        total.append(total[-1] + each)
    # best[r][n]: the largest sum of the first n layers in r + 1 runs, and the length of the last run
    best = [[(total[n], n) for n in range(len(total))]]
    for run in range(1, num_runs):
        row = [(float("inf"), 0)] * (run + 1)
        for n in range(run + 1, len(total)):
            row.append(min((max(best[-1][n - last][0], total[n] - total[n - last]), -last) for last in range(1, n - run + 1)))
        best.append([(value, abs(last)) for value, last in row])
    counts: list[int] = []
    n = len(seconds)
    for row in reversed(best):
        counts.insert(0, row[n][1])
        n -= row[n][1]
    return counts
