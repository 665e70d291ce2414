"""Mini-batches of a study, converted to the same blocks for every loader, and hoptrain's ``SampleLoader`` with its defaults.

``SampleLoader`` selects each rank's share itself. Without workers the data set is in memory. Every process records its seconds of sampling and
gathering.
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
        blocks: one a layer, the outermost first, on the CPU or the device.
        num_edges: sampled edges; one that two blocks share counts once.
        degrees: (S,) in-degrees of the input nodes, where edges have weights; else None.
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
        epoch: from the epoch's number to its mini-batches as the loader gives them.
        item: from one of them to an ``Item`` on a device: the copy.
        work: seconds of sampling and of gathering since it was called before, all processes of the loader together.
        pinned: whether workers and trainer were pinned to cores.
        close: lets go of cores, and ends workers that would not end with the process.
    """

    epoch: Callable[[int], Iterator[Any]]
    item: Callable[[Any, torch.device], Item]
    work: Callable[[], tuple[float, float]]
    pinned: bool = False
    close: Callable[[], None] = lambda: None


class Clock:
    """Seconds by process of a loader and kind of work. Workers are forked, so the memory is theirs too; each writes into a row of its own."""

    def __init__(self, workers: int) -> None:
        """Start with zero seconds."""
        self._spent = torch.zeros(workers + 1, 2, dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]
        self._before = (0.0, 0.0)

    def timed(self, kind: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the time of its calls noted."""

        def call(*args: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            out = function(*args, **named)
            self.add(kind, time.perf_counter() - begin)
            return out

        return call

    def add(self, kind: int, seconds: float) -> None:
        """Note the time of this process."""
        info = get_worker_info()
        self._spent[0 if info is None else info.id + 1, kind] += seconds

    def work(self) -> tuple[float, float]:
        """Seconds of sampling and of gathering since it was called before."""
        now = self._spent.sum(0).tolist()
        before, self._before = self._before, (now[0], now[1])
        return now[0] - before[0], now[1] - before[1]


def open_hoptrain(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open hoptrain's loader with its sampler of the cell's algorithm."""
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
