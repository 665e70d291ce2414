"""The common interface of all loaders in a study, whose mini-batches are converted to the same blocks, and its implementation for ``SampleLoader``.

``SampleLoader`` has its default settings and selects each rank's share of the seeds itself. Without workers the data set is in memory. Each process
records the seconds that it spends on sampling and on gathering features.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from hoptrain.benchmarks.cases.samplers import ALGORITHMS
from hoptrain.benchmarks.study.cell import Cell, Place
from hoptrain.engine import Dataset
from hoptrain.samplers import Block, SampleLoader

SAMPLE, GATHER = 0, 1


class Item(NamedTuple):
    """A mini-batch on the training device.

    Attributes:
        x: (S, F) features of the input nodes.
        y: (B,) labels of the seeds.
        blocks: one block per layer, the outermost first, on the CPU or the device.
        num_edges: number of sampled edges; an edge in several blocks counts once.
        degrees: (S,) in-degrees of the input nodes if edges have weights, otherwise None.
    """

    x: Tensor
    y: Tensor
    blocks: Sequence[Block]
    num_edges: int
    degrees: Tensor | None = None


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Feed:
    """An opened loader of one rank.

    Attributes:
        epoch: takes an epoch's number, and returns an iterator over its mini-batches in the loader's own format.
        item: copies such a mini-batch to a device, as an ``Item``.
        work: returns the seconds of sampling and of gathering since the previous call, summed over the loader's processes.
        pinned: whether workers and trainer are pinned to different cores.
        close: undoes the pinning, and ends workers that would outlive the process.
    """

    epoch: Callable[[int], Iterator[Any]]
    item: Callable[[Any, torch.device], Item]
    work: Callable[[], tuple[float, float]]
    pinned: bool = False
    close: Callable[[], None] = lambda: None


class Clock:
    """A clock that sums the seconds which each process of a loader spends on each kind of work.

    The counters are in shared memory, so that forked workers can write to them; each process has its own row.
    """

    def __init__(self, workers: int) -> None:
        """Start with zero seconds."""
        self._spent = torch.zeros(workers + 1, 2, dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]
        self._before = (0.0, 0.0)

    def timed(self, kind: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls timed."""

        def call(*args: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            out = function(*args, **named)
            self.add(kind, time.perf_counter() - begin)
            return out

        return call

    def add(self, kind: int, seconds: float) -> None:
        """Add seconds of work of the current process."""
        info = get_worker_info()
        self._spent[0 if info is None else info.id + 1, kind] += seconds

    def work(self) -> tuple[float, float]:
        """Return the seconds of sampling and of gathering since the previous call."""
        now = self._spent.sum(0).tolist()
        before, self._before = self._before, (now[0], now[1])
        return now[0] - before[0], now[1] - before[1]


def open_hoptrain(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open hoptrain's loader with its sampler for the cell's algorithm."""
    loader = SampleLoader(
        data if cell.workers else data.in_memory(),
        ALGORITHMS[cell.algorithm].sampler(**cell.sampler_arguments),
        split=place.seeds,
        batch_size=cell.batch_size,
        num_workers=cell.workers,
        seed=cell.seed,
        rank=place.rank,
        world_size=cell.ranks,
        pin_memory=torch.cuda.is_available() and cell.workers > 0,
    )
    degrees = torch.from_numpy(data.graph.in_degrees()).float()
    clock = Clock(0)

    def epoch(number: int) -> Iterator[Any]:
        loader.set_epoch(number)
        for batch in loader:
            clock.add(SAMPLE, batch.sample_s)
            clock.add(GATHER, batch.gather_s)
            yield batch
            del batch  # releases the queue slot

    def item(batch: Any, device: torch.device) -> Item:
        own = degrees[batch.node_ids].to(device) if batch.blocks[0].weights is not None else None
        batch = batch.to(device)
        return Item(batch.x, batch.y, batch.blocks, batch.num_edges, own)

    return Feed(epoch=epoch, item=item, work=clock.work, close=loader.close)
