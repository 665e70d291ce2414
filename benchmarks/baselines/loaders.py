"""The interface of the loaders in ``hoptrain bench loader``, and the consumer of their batches.

A loader is measured in a process of its own, by a ``Consumer``; see ``hoptrain.benchmarks.common.child``. Features lie in memory of their own. The
peers return new tensors for every mini-batch; the C library's allocator gives large ones back to the system at once, so that each costs
thousands of page faults. DGL's guide for CPUs advises tcmalloc against that. So each is measured with either.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.samplers import MiniBatch, NeighborSampler, SampleLoader

_LINE_BYTES = 64


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Case:
    """A load: an epoch of ``seeds`` (N,) in mini-batches of ``batch_size``, shuffled, with ``fanouts`` from the seeds outward."""

    fanouts: tuple[int, ...]
    batch_size: int
    seeds: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """An epoch that was consumed: its mini-batches, sampled edges, feature rows, and the seconds that reading the rows took."""

    batches: int
    edges: int
    rows: int
    touch_s: float


Epoch: TypeAlias = Callable[[], Iterator[tuple[int, Array]]]
"""Iterates over the next epoch: sampled edges and features (S, F) of each mini-batch."""

Open: TypeAlias = Callable[[Dataset], Callable[[Case, int], Epoch]]
"""From a data set to what makes a loader for a case and a number of workers."""


class Consumer:
    """A consumer of the mini-batches of one system's loaders, one case after another."""

    def __init__(self, open_loaders: Open, folder: Path) -> None:
        """Open the data set in ``folder``.

        Raises:
            InputError: the system is not installed.
        """
        self._make = open_loaders(Dataset.open(folder, verify=False))
        self._case: Case | None = None
        self._epochs: dict[int, Epoch] = {}

    def prepare(self, case: Case) -> None:
        """Drop the loaders of the case before, with their workers."""
        self._epochs.clear()
        gc.collect()
        self._case = case

    def load(self, workers: int) -> Load:
        """Consume an epoch of the case. Nothing is under way before it, and nothing is left under way after it."""
        if self._case is None:
            raise RuntimeError("there is nothing to load yet: prepare() comes first")
        if workers not in self._epochs:
            self._epochs[workers] = self._make(self._case, workers)
        return consume(self._epochs[workers])


def consume(epoch: Epoch) -> Load:
    """Read every row of every mini-batch, and hold on to none of them."""
    batches = edges = rows = 0
    touch_s = 0.0
    for num_edges, x in epoch():
        begin = time.perf_counter()
        touch(x, max(1, _LINE_BYTES // x.itemsize))
        touch_s += time.perf_counter() - begin
        batches, edges, rows = batches + 1, edges + num_edges, rows + len(x)
        del x  # before the wait for the next one
    return Load(batches=batches, edges=edges, rows=rows, touch_s=touch_s)


@cpu_kernel
def touch(x, step):  # type: ignore[no-untyped-def]
    """The sum of every ``step``-th value of each row of ``x`` (S, F), the first of each row among them: one of every cache line."""
    total = 0.0
    for i in range(x.shape[0]):
        for k in range(0, x.shape[1], step):
            total += x[i, k]
    return total


def persistent(batch_size: int, workers: int) -> dict[str, Any]:
    """Return the options of the loaders of torch, PyG and DGL: seeds are shuffled, and workers outlive an epoch."""
    return {"batch_size": batch_size, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}


class SlowSampler(NeighborSampler):
    """One neighbour of each seed; takes ``seconds`` of sleep for a mini-batch: its trainer can do nothing but wait."""

    def __init__(self, seconds: float) -> None:
        """Set the seconds that each batch sleeps."""
        super().__init__([1])
        self.seconds = seconds

    def sample_on_cpu(self, *batch: Any) -> MiniBatch:
        """Sleep, then sample."""
        time.sleep(self.seconds)
        return super().sample_on_cpu(*batch)


def idle_cpu_share(batches: int, seconds: float = 1.0) -> float:
    """CPU time of a process that waits for ``batches`` mini-batches of ``seconds`` each from one worker, as a share of a core."""
    num_nodes = batches + 1
    ring = Graph(np.arange(num_nodes + 1), np.roll(np.arange(num_nodes), 1))
    loader = SampleLoader(Dataset(name="ring", graph=ring), SlowSampler(seconds), split=np.arange(num_nodes), batch_size=1, num_workers=1)
    try:
        steps = iter(loader)
        next(steps)  # the worker has started
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in steps:
            pass
        return (time.process_time() - cpu) / (time.perf_counter() - begin)
    finally:
        loader.close()
