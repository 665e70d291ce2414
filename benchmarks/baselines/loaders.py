"""The interface of the loaders in ``hoptrain bench loader``, and the consumer of their batches.

A ``Consumer`` measures a loader in its own process (``hoptrain.benchmarks.common.child``), with features in that process's memory. Baselines return new
tensors for every mini-batch. The C library's allocator returns large freed blocks to the system at once, so that each new block costs thousands of page
faults; DGL's guide for CPUs therefore recommends tcmalloc. So baselines are measured with both allocators.
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
    """An epoch to load: ``seeds`` (N,) in shuffled mini-batches of ``batch_size``, with ``fanouts`` from the seeds outward."""

    fanouts: tuple[int, ...]
    batch_size: int
    seeds: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Measurements of a consumed epoch: its numbers of mini-batches, sampled edges and feature rows, and the seconds spent on reading the rows."""

    batches: int
    edges: int
    rows: int
    touch_s: float


Epoch: TypeAlias = Callable[[], Iterator[tuple[int, Array]]]
"""A function that returns an iterator over the next epoch. For each mini-batch, it yields the number of sampled edges and the features (S, F)."""

Open: TypeAlias = Callable[[Dataset], Callable[[Case, int], Epoch]]
"""A function that takes a data set, and returns a function that opens a loader for a case and a number of workers."""


class Consumer:
    """A consumer of one system's mini-batches: it prepares one case after another, and loads epochs of each."""

    def __init__(self, open_loaders: Open, folder: Path) -> None:
        """Open the data set in ``folder``.

        Raises:
            InputError: the system is not installed.
        """
        self._make = open_loaders(Dataset.open(folder, verify=False))
        self._case: Case | None = None
        self._epochs: dict[int, Epoch] = {}

    def prepare(self, case: Case) -> None:
        """Set the case to load, and close the loaders of the previous case with their workers."""
        self._epochs.clear()
        gc.collect()
        self._case = case

    def load(self, workers: int) -> Load:
        """Load and consume one epoch of the case. No batch is prefetched before the epoch, and none is left after its end."""
        if self._case is None:
            raise RuntimeError("no case is set: call prepare() before load()")
        if workers not in self._epochs:
            self._epochs[workers] = self._make(self._case, workers)
        return consume(self._epochs[workers])


def consume(epoch: Epoch) -> Load:
    """Read a value of every cache line of the features of each mini-batch, without keeping the mini-batches."""
    batches = edges = rows = 0
    touch_s = 0.0
    for num_edges, x in epoch():
        begin = time.perf_counter()
        touch(x, max(1, _LINE_BYTES // x.itemsize))
        touch_s += time.perf_counter() - begin
        batches, edges, rows = batches + 1, edges + num_edges, rows + len(x)
        del x  # frees the batch before waiting for the next one
    return Load(batches=batches, edges=edges, rows=rows, touch_s=touch_s)


@cpu_kernel
def touch(x, step):  # type: ignore[no-untyped-def]
    """Return the sum of every ``step``-th value of each row of ``x`` (S, F), starting with the first: one value of each cache line."""
    total = 0.0
    for i in range(x.shape[0]):
        for k in range(0, x.shape[1], step):
            total += x[i, k]
    return total


def persistent(batch_size: int, workers: int) -> dict[str, Any]:
    """Return the arguments with which the loaders of torch, PyG and DGL shuffle the seeds and keep their workers between epochs."""
    return {"batch_size": batch_size, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}


class SlowSampler(NeighborSampler):
    """A sampler of one neighbour per seed that sleeps for ``seconds`` in each mini-batch, so that the trainer only waits."""

    def __init__(self, seconds: float) -> None:
        """Store the seconds to sleep in each mini-batch."""
        super().__init__([1])
        self.seconds = seconds

    def sample_on_cpu(self, *batch: Any) -> MiniBatch:
        """Sleep, then sample."""
        time.sleep(self.seconds)
        return super().sample_on_cpu(*batch)


def idle_cpu_share(batches: int, seconds: float = 1.0) -> float:
    """Return the CPU time, as a fraction of one core, of a process that waits for a worker, which takes ``seconds`` for each of ``batches`` mini-batches."""
    num_nodes = batches + 1
    ring = Graph(np.arange(num_nodes + 1), np.roll(np.arange(num_nodes), 1))
    loader = SampleLoader(Dataset(name="ring", graph=ring), SlowSampler(seconds), split=np.arange(num_nodes), batch_size=1, num_workers=1)
    try:
        steps = iter(loader)
        next(steps)  # not timed: the first batch includes the start of the worker
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in steps:
            pass
        return (time.process_time() - cpu) / (time.perf_counter() - begin)
    finally:
        loader.close()
