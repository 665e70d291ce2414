"""Base class of all loaders in ``hoptrain.pyg``: torch yields the indices, hoptrain's workers sample and gather, PyG assembles the batch."""

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
from hoptrain.pyg.arguments import SET_BY_LOADERS, check_arguments
from hoptrain.pyg.features import edge_ids_in, feature_names, get_features, put, rows_to_gather, without
from hoptrain.pyg.graphs import ConvertedGraph
from hoptrain.pyg.on_device import DEVICE_OPTIONS, DeviceAttributes, check_on_device, get_bulk
from hoptrain.samplers import MiniBatch, Sampler
from hoptrain.samplers.loader.cores import runs_ahead
from hoptrain.samplers.loader.external_seed_loader import ExternalSeedLoader
from hoptrain.samplers.loader.external_seeds import BatchSource, LoaderSpec, RngContext, version_of
from hoptrain.samplers.loader.maker import DeviceOptions

if TYPE_CHECKING:
    from hoptrain.samplers.loader.device_feed import DeviceFeed
    from hoptrain.samplers.loader.gpu_cache import HitRates

MOST_COUNTED = 1024
"""Maximum number of batches whose row accesses are counted to choose the rows of a ``gpu_cache``."""


class LoaderMixin:
    """A mixin that makes a PyG loader sample with hoptrain. A loader inherits from it and from torch's ``DataLoader`` or a loader of PyG.

    With ``device="cuda"`` the GPU samples one bulk ahead; batches are on the GPU and bit-identical to those of the CPU. ``bulk``,
    ``graph_placement``, ``feature_placement``, ``gpu_cache`` and ``cuda_graphs`` have the meaning that they have in ``hoptrain.SampleLoader``.

    Attributes:
        data: The whole graph with its attributes.
    """

    data: Any
    _on_device: DeviceOptions | None = None
    _attributes: DeviceAttributes | None = None
    _feed: ExternalSeedLoader | None = None
    _kept: tuple[dict[str, Any], dict[str, int], dict[str, Array]] | None = None
    """Features by name, the in-place version counter of each, and the arrays from which workers gather."""
    _epoch = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the arguments as attributes of the same names, from which Lightning rebuilds a loader with another sampler."""
        loader = super().__new__(cls)
        with suppress(TypeError):  # bind_partial raises for unknown arguments, which __init__ reports
            own = {name: value for name, value in kwargs.items() if name not in SET_BY_LOADERS}
            given = signature(cls.__init__).bind_partial(loader, *args, **own).arguments
            vars(loader).update(list(given.items())[1:])
        return loader

    def torch_options(
        self, kwargs: dict[str, Any], sampler: Sampler[Any, Any], *, filter_per_worker: bool | None = None, **refused: bool
    ) -> dict[str, Any]:
        """Return the arguments for torch's ``DataLoader``, and store the GPU options (``DEVICE_OPTIONS``) among ``kwargs``.

        Args:
            kwargs: Further arguments that the user gave, in addition to those of the PyG loader.
            sampler: Sampler of the loader.
            filter_per_worker: The PyG argument of this name.
            refused: Options that are not supported on a GPU, by name; True if the user set the option.

        Raises:
            InputError: an argument is not supported, or not supported on a GPU.
        """
        options = check_arguments(kwargs, filter_per_worker=filter_per_worker)
        own = {name: options.pop(name) for name in DEVICE_OPTIONS if name in options}
        self._on_device = DeviceOptions.checked(own.pop("device", None), **own)
        if self._on_device is not None:
            check_on_device(sampler, self.data, options.get("num_workers", 0), **refused)
        return options

    @property
    @abstractmethod
    def sampler_and_graph(self) -> tuple[Sampler[Any, Any], Any]:
        """Prepared sampler, and the graph that it samples."""

    @property
    def knows_items(self) -> bool:
        """True if the items of a batch follow from its indices, by ``items``; otherwise PyG's code is called to find them."""
        return True

    @abstractmethod
    def items(self, index: list[int]) -> Array:
        """Return the items (B,), such as seeds, that hoptrain samples around for the batch with these indices."""

    @abstractmethod
    def assembled(self, index: list[int], source: BatchSource, state: int) -> Any:
        """Return the PyG batch for the seeds ``index``.

        Args:
            index: Indices of the batch, from torch's sampler.
            source: Function from seeds to the sampled mini-batch.
            state: Random seed of torch's generator while PyG's code runs.
        """

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch. The seed comes from torch's generator, as in torch's ``DataLoader``."""
        loader: Any = self
        if hasattr(
            type(self), "collate_fn"
        ):  # torch stores the bound method in the object: a reference cycle that delays the end of workers
            self.__dict__.pop("collate_fn", None)
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator))
        place = RngContext.of(seed, self._epoch, _length(loader._index_sampler))
        self._epoch += 1
        if self._feed is None:
            bulk = (
                1 if self._on_device is None else get_bulk(self._on_device, loader.batch_size, place.num_steps, self.sampler_and_graph[0])
            )
            self._feed = ExternalSeedLoader(loader.num_workers, loader.prefetch_factor, loader.timeout, self._on_device, bulk)
        is_pinned = loader.pin_memory and self._on_device is None and torch.cuda.is_available()

        def made(step: int, index: list[int], source: BatchSource) -> Any:
            return self.assembled(index, source, place.state(step))

        indices = _iter_indices(loader._index_sampler, place)
        items_of = self.items if self.knows_items else None
        for batch in self._feed.epoch(self._work(), place, indices, made, runs_ahead(self), self._indices_to_count(place), items_of):
            yield batch.pin_memory() if is_pinned else batch
            del batch

    def _indices_to_count(self, place: RngContext) -> Iterator[list[int]]:
        """Yield indices of shuffled batches, to count how often an epoch reads each row."""
        number, size = len(cast(Any, self).dataset), self._batch_indices
        order = permutation(number, place.seed, place.epoch)
        for begin in range(0, min(number, MOST_COUNTED * size), size):
            yield order[begin : begin + size].tolist()

    @property
    def _batch_indices(self) -> int:
        """Number of indices in a batch."""
        size = cast(Any, self).batch_size
        if size is None:
            raise InputError("gpu_cache with batch_sampler: row accesses are counted in batches of batch_size; leave one of them out")
        return int(size)

    @property
    def hit_rates(self) -> HitRates | None:
        """Hit rates of the ``gpu_cache``, expected and measured by epoch; None without a cache, or before the first batch."""
        return None if self._feed is None else self._feed.hit_rates

    def attributes(self, feed: DeviceFeed[Any], names: list[str]) -> DeviceAttributes:
        """Return node and edge attributes in memory that the GPU reads, without the features ``names``, which ``feed`` gathers itself."""
        if self._attributes is None or not self._attributes.is_of(self.data, feed):
            self._attributes = None  # frees the old copy before the new one is allocated
            self._attributes = DeviceAttributes(self.data, feed, names)
        return self._attributes

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the workers: a copy of the loader starts its own workers."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_feed", "_kept", "_attributes")}

    def close(self) -> None:
        """Stop the workers and free GPU memory; the next epoch starts new ones. This also happens when the loader or the process ends."""
        self._attributes = None
        if self._feed is not None:
            self._feed.close()

    def _work(self) -> LoaderSpec:
        """Return the objects that workers need. If the data have not changed, these are the objects of the last call, so that workers are kept."""
        sampler, graph = self.sampler_and_graph
        features = self.features() | self.edge_ids()
        versions = _versions(features)
        kept = self._kept
        if kept is None or kept[1] != versions or any(x is not kept[0][name] for name, x in features.items()):
            made = {name: rows_to_gather(name, x) for name, x in features.items()}
            self._kept = kept = features, versions, {name: rows for name, rows in made.items() if rows is not None}
        return LoaderSpec(graph, sampler, kept[2], partial(_versions, features))

    def features(self) -> dict[str, Any]:
        """Return the features that workers gather, by their name in a batch."""
        return get_features(self.data)

    def edge_ids(self) -> dict[str, Tensor]:
        """Return the PyG edge ids that workers look up, by their name in a batch; empty if CSC positions are PyG's edge ids."""
        return {}


def _versions(features: dict[str, Any]) -> dict[str, int]:
    """Return the number of in-place changes of each tensor."""
    return {name: version_of(x) for name, x in features.items()}


def _length(index_sampler: Any) -> int | None:
    """Return the number of batches, or None if the sampler has no length."""
    try:
        return len(index_sampler)
    except (TypeError, NotImplementedError):
        return None


def _iter_indices(index_sampler: Any, place: RngContext) -> Iterator[list[int]]:
    """Yield the indices of each batch, in order.

    For the first batch the sampler draws from torch's generator as it is; torch's own samplers draw only then. For later batches a custom sampler draws from a
    generator seeded by the batch's address. So the draws of sampler and training do not depend on how far ahead batches are requested.
    """
    batches = iter(index_sampler)
    first = next(batches, None)
    if first is None:
        return
    yield list(first)
    for step in count(1):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(place.state(step) ^ 1)  # flips a bit, so that the seed differs from the seed of PyG's code
            index = next(batches, None)
        if index is None:
            return
        yield list(index)


def subgraph_of(loader: LoaderMixin, source: BatchSource, converted: ConvertedGraph) -> Any:
    """Return the subgraph of the loader's ``data`` with the nodes and edges of the batch in ``source``, and with the features gathered for it.

    Edges are sorted by PyG edge id if the converted graph has another order; otherwise they are sorted by destination, as in the batch.
    """
    data = loader.data
    feed = source.on_device
    tensors: MiniBatch = source.batch.to("cpu" if feed is None else feed.beside.torch_device)
    block = tensors.blocks[0]
    edges, (row, col) = block.edge_ids.long(), block.edge_index()
    if converted.permutation is not None:
        edges, order = edge_ids_in(source)[""].sort()
        row, col = row[order], col[order]
    nodes, attributes = tensors.node_ids.long(), None if feed is None else loader.attributes(feed, feature_names(source.names))
    whole = without(data, feature_names(source.names)) if attributes is None else attributes.rest
    made = filter_data(whole, nodes, row, col, edges)
    made.edge_index = torch.stack([row, col])
    if attributes is not None:
        return attributes.put(made, nodes, edges, source)
    put(made, data, source.rows())
    return made
