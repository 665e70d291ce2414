"""The feed of PyG's loaders: torch deals out the indices, hoptrain's workers sample and gather, PyG puts the batch together.

An epoch goes over PyG's own code twice. Before it, for what each batch asks of the sampler: its seeds, after PyG has drawn negatives and made
times of it. And batch by batch as they arrive, for what becomes of the sample. Both times torch's generator starts at the batch's address.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from hoptrain.engine import Dataset, QueueOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.kernels.cpu.shuffle import random_words
from hoptrain.kernels.shared.philox import HOP_HOST
from hoptrain.pyg.sampler import NeighborSampler
from hoptrain.samplers import MiniBatch, SampleLoader, Sampler
from hoptrain.samplers.feed.epochs import rank_and_world_size
from hoptrain.samplers.feed.given import GivenBatches

_GATHERED = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)


class Fed:
    """What the loaders share. A class inherits from it and from a loader of PyG's, and says its ``hops``."""

    data: Any
    transform: Callable[[Any], Any] | None
    _feed: SampleLoader[MiniBatch] | None = None
    _feed_of: Sampler
    _given: GivenBatches
    _epoch = 0

    @property
    def hops(self) -> NeighborSampler:
        """The sampler."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch. Each iteration is another epoch; ``torch.initial_seed()`` is the seed of all."""
        loader: Any = self
        indices = [list(index) for index in loader._index_sampler]
        place = _Place(torch.initial_seed() % (1 << 64), self._epoch, *rank_and_world_size(), len(indices))
        self._epoch += 1
        feed = self._opened(place, [self._asked(index, place.state(step)) for step, index in enumerate(indices)])
        feed.set_epoch(place.epoch)
        for step, (index, batch) in enumerate(zip(indices, feed, strict=True)):
            made = self._assembled(index, batch, place.state(step))
            del batch  # its memory is free for the next one, but for the features
            yield made.pin_memory() if loader.pin_memory and torch.cuda.is_available() else made

    def close(self) -> None:
        """End the workers; the next epoch starts new ones. They also end with this object, and with this process."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _asked(self, index: list[int], state: int) -> Array:
        """What the sampler is asked for a batch."""

        def ask(items: Array) -> MiniBatch:
            raise _Asked(items)

        try:
            self._collated(index, state, ask)
        except _Asked as asked:
            return asked.items
        return np.empty(0, np.int64)

    def _collated(self, index: list[int], state: int, source: Callable[[Array], MiniBatch]) -> Any:
        """PyG's ``collate_fn``, with what it draws by torch's generator at ``state``, and what it samples from ``source``."""
        hops, loader = self.hops, cast(Any, self)
        hops.source = source
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(state)
                return loader.collate_fn(index)
        finally:
            hops.source = None

    def _opened(self, place: _Place, items: Sequence[Array]) -> SampleLoader[MiniBatch]:
        """The feed for the items of an epoch's steps."""
        sampler = self.hops.sampler
        if self._feed is not None and self._feed_of is sampler and self._given.give(place.seed, items):
            return self._feed
        self.close()
        loader: Any = self
        self._given = GivenBatches(len(items), sum(map(len, items)), place.rank, place.world_size)
        self._given.give(place.seed, items)
        data = Dataset(name="data", graph=self.hops.graph, x=self._rows(), validate=False)
        workers, patience = loader.num_workers, {"stall_timeout": loader.timeout} if loader.timeout else {}
        queue = QueueOptions(prefetch=loader.prefetch_factor or DEFAULTS.prefetch, **patience) if workers else DEFAULTS
        schedule, self._feed_of = cast(Any, self._given), sampler
        self._feed = SampleLoader(data, sampler.prepare(data.graph, items[0]), schedule=schedule, num_workers=workers, queue=queue)
        return self._feed

    def _rows(self) -> Array | None:
        """The features, if workers may gather them: rows of numbers on the CPU, of which PyG takes those of the sampled vertices."""
        x = self.data.get("x")
        is_plain = (
            type(x) is torch.Tensor and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in _GATHERED and x.dim() == 2
        )
        if not is_plain or cast(Any, self).transform_sampler_output is not None:
            return None
        return cast(Array, x.detach().numpy())

    def _assembled(self, index: list[int], batch: MiniBatch, state: int) -> Any:
        """PyG's batch."""
        loader: Any = self
        out = self._collated(index, state, lambda _: batch)
        if batch.x is None or len(out.node) != len(batch.node_ids):  # some seeds stand there several times
            return loader.filter_fn(out)
        whole, transform = self.data, self.transform
        self.data, self.transform = _without_features(whole), None
        try:
            made = loader.filter_fn(out)
        finally:
            self.data, self.transform = whole, transform
        if "num_nodes" not in whole:
            del made["num_nodes"]
        made.x = batch.to("cpu").x
        return made if transform is None else transform(made)


class _Place(NamedTuple):
    """Where an epoch's random numbers are."""

    seed: int
    epoch: int
    rank: int
    world_size: int
    num_steps: int

    def state(self, step: int) -> int:
        """Where torch's generator starts for the batch of a step."""
        return int(random_words(1, self.seed, self.epoch, self.rank * self.num_steps + step, HOP_HOST)[0])


class _Asked(Exception):
    """What a batch asks of the sampler."""

    def __init__(self, items: Array) -> None:
        """Note the items."""
        super().__init__()
        self.items = items


def _without_features(data: Any) -> Any:
    """The same, but for ``x``; it says how many vertices it has."""
    other = copy.copy(data)
    del other.x
    other.num_nodes = data.num_nodes
    return other
