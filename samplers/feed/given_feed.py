"""The feed of a loader that deals out the items of its batches itself, epoch by epoch, as those of other libraries do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hoptrain.engine import Dataset, Graph, QueueOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.kernels.cpu.shuffle import random_words
from hoptrain.kernels.shared.philox import HOP_HOST
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.feed.given import GivenBatches
from hoptrain.samplers.feed.loader import SampleLoader


class Place(NamedTuple):
    """Where an epoch's random numbers are."""

    seed: int
    epoch: int
    rank: int
    world_size: int
    num_steps: int

    def state(self, step: int) -> int:
        """Where a generator of the host starts for the batch of a step."""
        return int(random_words(1, self.seed, self.epoch, self.rank * self.num_steps + step, HOP_HOST)[0])


class Work(NamedTuple):
    """What batches are made of. Another object in one of the places starts the workers anew."""

    graph: Graph
    sampler: Sampler
    """Prepared."""
    rows: Array | None
    """(V, F) features that come with the vertices of a batch."""


def plain_rows(x: Any) -> Array | None:
    """A tensor of torch as an array that workers may gather rows of: (V, F) numbers on the CPU, one row after another. None for any other object.

    Whatever else an index into ``x`` would do, such as to hand on gradients, is for torch.
    """
    import torch

    gathered = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in gathered and x.dim() == 2
    if not is_plain or not x.is_contiguous() or x.requires_grad or x.is_neg():
        return None
    rows: Array = x.numpy()
    return rows


class GivenFeed:
    """Sampler processes that stay from epoch to epoch, as long as they have the same work."""

    def __init__(self, num_workers: int, prefetch: int | None = None, timeout: float = 0) -> None:
        """State the processes, what they have ready, and the seconds after which one that makes nothing is replaced; None and 0 for defaults."""
        options: dict[str, Any] = {"prefetch": prefetch} if prefetch else {}
        options |= {"stall_timeout": timeout} if timeout else {}
        self._workers, self._queue = num_workers, QueueOptions(**options) if num_workers else DEFAULTS
        self._loader: SampleLoader[MiniBatch] | None = None
        self._work: Work
        self._given: GivenBatches

    def batches(self, work: Work, place: Place, items: Sequence[Array]) -> Iterator[MiniBatch]:
        """The batches of an epoch, by the items (B,) of each of its steps."""
        if not items:
            return iter(())
        is_same = self._loader is not None and all(one is other for one, other in zip(work, self._work, strict=True))
        if self._loader is None or not (is_same and self._given.give(place.seed, items)):
            self.close()
            room = sum(map(len, items)) * 5 // 4  # items may be drawn: the next epoch has a few more
            self._work, self._given = work, GivenBatches(len(items), room, place.rank, place.world_size)
            self._given.give(place.seed, items)
            data, schedule = Dataset(graph=work.graph, x=work.rows, validate=False), self._given
            self._loader = SampleLoader(data, work.sampler, schedule=schedule, num_workers=self._workers, queue=self._queue)  # type: ignore[arg-type]
        self._loader.set_epoch(place.epoch)
        return iter(self._loader)

    def items(self, step: int) -> Array:
        """The items (B,) of a step of the epoch."""
        return self._given.batch_items(0, step)

    def close(self) -> None:
        """End the workers; the next epoch starts new ones. They also end with this object, and with this process."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None
