"""The feed of PyG's loaders: torch deals out the indices, hoptrain's workers sample and gather, PyG puts the batch together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch_geometric.loader.utils import filter_data

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.shuffle import permutation
from hoptrain.pyg.arguments import SET_BY_LOADERS, honoured
from hoptrain.pyg.features import features_of, names_of, numbers_in, put, rows_to_gather, without
from hoptrain.pyg.graphs import Converted
from hoptrain.pyg.on_device import DEVICE_OPTIONS, DeviceAttributes, bulk_of, check_on_device
from hoptrain.samplers import MiniBatch, Sampler
from hoptrain.samplers.loader.early import runs_ahead
from hoptrain.samplers.loader.given import Place, Source, Work, version_of
from hoptrain.samplers.loader.given_feed import GivenFeed
from hoptrain.samplers.loader.loader import DeviceOptions

if TYPE_CHECKING:
    from hoptrain.samplers.loader.device_feed import DeviceFeed
    from hoptrain.samplers.loader.gpu_cache import HitRates

MOST_COUNTED = 1024
"""Batches that rows are counted in for a ``gpu_cache``."""


class Fed:
    """What the loaders share. A class inherits from it and from torch's ``DataLoader``, or one of PyG's.

    With ``device="cuda"`` the GPU samples, one bulk ahead, and batches come on it, the same bit for bit. ``bulk``, ``graph_placement``,
    ``feature_placement``, ``gpu_cache`` and ``cuda_graphs`` are those of ``hoptrain.SampleLoader``.

    Attributes:
        data: the whole graph with its attributes.
    """

    data: Any
    _on_device: DeviceOptions | None = None
    _attributes: DeviceAttributes | None = None
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

    def torch_options(
        self, kwargs: dict[str, Any], sampler: Sampler[Any, Any], *, filter_per_worker: bool | None = None, **refused: bool
    ) -> dict[str, Any]:
        """Return those of ``kwargs`` that torch's loader is to get, once those of a GPU were taken out and noted.

        Args:
            kwargs: what the user gave beside PyG's arguments.
            sampler: what samples.
            filter_per_worker: PyG's argument.
            refused: whether options are given that a GPU cannot honour, by the name of each.

        Raises:
            InputError: an option that would change results if it were ignored, or that a GPU cannot honour.
        """
        options = honoured(kwargs, filter_per_worker=filter_per_worker)
        own = {name: options.pop(name) for name in DEVICE_OPTIONS if name in options}
        self._on_device = DeviceOptions.checked(own.pop("device", None), **own)
        if self._on_device is not None:
            check_on_device(sampler, self.data, options.get("num_workers", 0), **refused)
        return options

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
            bulk = 1 if self._on_device is None else bulk_of(self._on_device, loader.batch_size, place.num_steps, self.sampler_and_graph[0])
            self._feed = GivenFeed(loader.num_workers, loader.prefetch_factor, loader.timeout, self._on_device, bulk)
        is_pinned = loader.pin_memory and self._on_device is None and torch.cuda.is_available()

        def made(step: int, index: list[int], source: Source) -> Any:
            return self.assembled(index, source, place.state(step))

        indices = _dealt_out(loader._index_sampler, place)
        for batch in self._feed.epoch(self._work(), place, indices, made, runs_ahead(self), self._indices_to_count(place)):
            yield batch.pin_memory() if is_pinned else batch
            del batch

    def _indices_to_count(self, place: Place) -> Iterator[list[int]]:
        """Indices such as those of an epoch, to count how often rows are read."""
        number, size = len(cast(Any, self).dataset), self._batch_indices
        order = permutation(number, place.seed, place.epoch)
        for begin in range(0, min(number, MOST_COUNTED * size), size):
            yield order[begin : begin + size].tolist()

    @property
    def _batch_indices(self) -> int:
        """How many indices a batch has."""
        size = cast(Any, self).batch_size
        if size is None:
            raise InputError("gpu_cache with batch_sampler: rows are counted in batches of batch_size; leave one of them out")
        return int(size)

    @property
    def hit_rates(self) -> HitRates | None:
        """With a ``gpu_cache``, once the first batch was asked for, the share of the rows that comes from it, expected and by epoch."""
        return None if self._feed is None else self._feed.hit_rates

    def attributes(self, feed: DeviceFeed[Any], names: list[str]) -> DeviceAttributes:
        """Return what the nodes and edges have, where the GPU reads it; ``names`` are the features that ``feed`` gathers itself."""
        if self._attributes is None or not self._attributes.is_of(self.data, feed):
            self._attributes = None  # so that its memory is free before the new one asks for some
            self._attributes = DeviceAttributes(self.data, feed, names)
        return self._attributes

    def __getstate__(self) -> dict[str, Any]:
        """Without the workers: a copy starts its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_feed", "_kept", "_attributes")}

    def close(self) -> None:
        """End the workers, and free what is on a GPU; the next epoch starts anew. They also end with this object, and with this process."""
        self._attributes = None
        if self._feed is not None:
            self._feed.close()

    def _work(self) -> Work:
        """The same objects as before, unless something was changed."""
        sampler, graph = self.sampler_and_graph
        features = self.features() | self.numbers()
        versions = _versions(features)
        kept = self._kept
        if kept is None or kept[1] != versions or any(x is not kept[0][name] for name, x in features.items()):
            made = {name: rows_to_gather(name, x) for name, x in features.items()}
            self._kept = kept = features, versions, {name: rows for name, rows in made.items() if rows is not None}
        return Work(graph, sampler, kept[2], partial(_versions, features))

    def features(self) -> dict[str, Any]:
        """What workers are to gather, where it is rows of numbers on the CPU, by the name that it has in a batch."""
        return features_of(self.data)

    def numbers(self) -> dict[str, Tensor]:
        """The user's numbers of the graph's edges, which workers are to look up, by the name of rows of edges; none where these are the same."""
        return {}


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


def subgraph_of(loader: Fed, source: Source, converted: Converted) -> Any:
    """The loader's ``data`` with the nodes and edges of the batch that was asked of ``source``; features are those that came with it, where some did.

    Edges stand in the order of the user's numbers where the graph has another order; else as in the batch, by destination.
    """
    data = loader.data
    feed = source.on_device
    tensors: MiniBatch = source.batch.to("cpu" if feed is None else feed.beside.torch_device)
    block = tensors.blocks[0]
    edges, (row, col) = block.edge_ids.long(), block.edge_index()
    if converted.permutation is not None:
        edges, order = numbers_in(source)[""].sort()
        row, col = row[order], col[order]
    nodes, attributes = tensors.node_ids.long(), None if feed is None else loader.attributes(feed, names_of(source.names))
    whole = without(data, names_of(source.names)) if attributes is None else attributes.rest
    made = filter_data(whole, nodes, row, col, edges)
    made.edge_index = torch.stack([row, col])
    if attributes is not None:
        return attributes.put(made, nodes, edges, source)
    put(made, data, source.rows())
    return made
