"""The feed of PyG's loaders: torch deals out the indices, hoptrain's workers sample and gather, PyG puts the batch together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from inspect import signature
from itertools import count
from typing import Any, Self

import torch
from torch_geometric.loader.utils import filter_data

from hoptrain.engine.arrays import Array
from hoptrain.pyg.arguments import SET_BY_LOADERS
from hoptrain.pyg.features import features_of, put, without
from hoptrain.pyg.graphs import Converted
from hoptrain.samplers import MiniBatch, Sampler
from hoptrain.samplers.feed.early import runs_ahead
from hoptrain.samplers.feed.given_feed import GivenFeed, Place, Source, Work, plain_rows, version_of


class Fed:
    """What the loaders share. A class inherits from it and from torch's ``DataLoader``, or one of PyG's.

    Attributes:
        data: the whole graph with its attributes.
    """

    data: Any
    _feed: GivenFeed | None = None
    _kept: tuple[dict[str, Any], dict[str, int], dict[str, Array]] | None = None
    """Features, how often each was changed in place, and what workers gather of them, which are copies."""
    _epoch = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the arguments as attributes: Lightning builds a loader with another sampler from the attributes named as the arguments."""
        loader = super().__new__(cls)
        with suppress(TypeError):  # a missing or unknown argument, which __init__ reports
            own = {name: value for name, value in kwargs.items() if name not in SET_BY_LOADERS}
            given = signature(cls.__init__).bind_partial(loader, *args, **own).arguments
            vars(loader).update(list(given.items())[1:])
        return loader

    @property
    @abstractmethod
    def sampler_and_graph(self) -> tuple[Sampler[Any, Any], Any]:
        """What is sampled, prepared, by what."""

    @abstractmethod
    def assembled(self, index: list[int], source: Source, state: int) -> Any:
        """PyG's batch, of what ``source`` gives for the items that it asks for.

        ``state`` is where torch's generator starts, if PyG's code is to draw something.
        """

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch. Its seed comes from torch's generator, as in torch's loader."""
        loader: Any = self
        if hasattr(type(self), "collate_fn"):  # else torch's copy of the method in the object is a circle, and workers wait to be collected
            self.__dict__.pop("collate_fn", None)
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator))
        place = Place.of(seed, self._epoch, _length(loader._index_sampler))
        self._epoch += 1
        if self._feed is None:
            self._feed = GivenFeed(loader.num_workers, loader.prefetch_factor, loader.timeout)

        def made(step: int, index: list[int], source: Source) -> Any:
            return self.assembled(index, source, place.state(step))

        for batch in self._feed.epoch(self._work(), place, _dealt_out(loader._index_sampler, place), made, runs_ahead(self)):
            yield batch.pin_memory() if loader.pin_memory and torch.cuda.is_available() else batch
            del batch

    def __getstate__(self) -> dict[str, Any]:
        """Without the workers: a copy starts its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_feed", "_kept")}

    def close(self) -> None:
        """End the workers; the next epoch starts new ones. They also end with this object, and with this process."""
        if self._feed is not None:
            self._feed.close()

    def _work(self) -> Work:
        """The same objects as before, unless something was changed."""
        sampler, graph = self.sampler_and_graph
        features = self.features()
        versions = _versions(features)
        kept = self._kept
        if kept is None or kept[1] != versions or any(x is not kept[0][name] for name, x in features.items()):
            made = {name: plain_rows(x) for name, x in features.items()}
            self._kept = kept = features, versions, {name: rows for name, rows in made.items() if rows is not None}
        return Work(graph, sampler, kept[2], partial(_versions, features))

    def features(self) -> dict[str, Any]:
        """What workers are to gather, where it is rows of numbers on the CPU, by the name that it has in a batch."""
        return features_of(self.data)


def _versions(features: dict[str, Any]) -> dict[str, int]:
    """How often each was changed in place."""
    return {name: version_of(x) for name, x in features.items()}


def _length(index_sampler: Any) -> int | None:
    """Its number of batches, if it says one."""
    try:
        return len(index_sampler)
    except (TypeError, NotImplementedError):
        return None


def _dealt_out(index_sampler: Any, place: Place) -> Iterator[list[int]]:
    """The indices of one batch after another.

    For the first one torch's generator goes on, as it does for all that torch's own samplers draw. What another one draws later is drawn at the
    batch's address: how far ahead it is asked changes neither its draws nor those of the training.
    """
    batches = iter(index_sampler)
    first = next(batches, None)
    if first is None:
        return
    yield list(first)
    for step in count(1):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(place.state(step) ^ 1)  # another one than PyG's code starts at
            index = next(batches, None)
        if index is None:
            return
        yield list(index)


def subgraph_of(data: Any, source: Source, converted: Converted) -> Any:
    """``data`` with the vertices and edges of the batch that was asked of ``source``; features are those that came with it, where some did.

    Edges stand in the order of the user's numbers where the graph has another order; else as in the batch, by destination.
    """
    tensors: MiniBatch = source.batch.to("cpu")
    block, numbers = tensors.blocks[0], converted.permutation
    edges, (row, col) = block.edge_ids.long(), block.edge_index()
    if numbers is not None:
        edges, order = numbers[edges].sort()
        row, col = row[order], col[order]
    made = filter_data(without(data, source.names), tensors.node_ids.long(), row, col, edges)
    made.edge_index = torch.stack([row, col])
    put(made, data, source.rows())
    return made
