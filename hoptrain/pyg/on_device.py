"""PyG batches on a GPU: node and edge attributes are read from device memory or pinned memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage, NodeStorage

from hoptrain.engine import InputError
from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.pyg.features import put, without
from hoptrain.pyg.graphs import get_state
from hoptrain.samplers import Sampler
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.loader.device_feed import DeviceFeed, default_bulk
from hoptrain.samplers.loader.external_seeds import BatchSource, plain_rows
from hoptrain.samplers.loader.maker import DeviceOptions

DEVICE_OPTIONS = ("device", "bulk", "graph_placement", "feature_placement", "gpu_cache", "cuda_graphs")
"""Arguments that the loaders take in addition to PyG's arguments. They have the same meaning as in ``hoptrain.SampleLoader``."""


def check_on_device(sampler: Sampler[Any, Any], data: Any, num_workers: int, **refused: bool) -> None:
    """Raise InputError if a GPU cannot sample for a loader.

    Args:
        sampler: Sampler of the loader.
        data: PyG data of the loader.
        num_workers: Number of workers of the loader.
        refused: Options that need sampling on the host, by name; True if the user set the option.

    Raises:
        InputError: the sampler has no CUDA implementation, workers or host options are requested, or the data has an ``adj_t``.
    """
    from hoptrain.samplers.cuda.drivers import check_driver

    check_driver(sampler.device_sampler)
    if num_workers:
        raise InputError(f'num_workers is {num_workers} with device="cuda": the GPU samples in this process; leave one of them out')
    for name, is_given in refused.items():
        if is_given:
            raise InputError(f'{name} with device="cuda": the option needs samples on the host; leave one of them out')
    for store in data.stores:
        if "adj_t" in store:
            raise InputError('adj_t with device="cuda": batches on a GPU have an edge_index; give data.edge_index instead')


def get_bulk(options: DeviceOptions, batch_size: int | None, num_steps: int, sampler: Sampler[Any, Any]) -> int:
    """Return the number of batches that a GPU samples at once: the user's ``bulk``, or ``default_bulk`` for the batch size."""
    return options.bulk or default_bulk(batch_size or 1, num_steps, sampler.single_item or batch_size is None)


class _Attribute(NamedTuple):
    key: Any
    """Node type or edge type of the store in a ``HeteroData``; None in a ``Data``."""
    name: str
    of_edges: bool
    value: Any


class DeviceAttributes:
    """The node and edge attributes of a PyG graph in memory that a GPU reads.

    Attributes:
        data: PyG data of the loader.
        rest: The data without these attributes, on the GPU. Its ``edge_index`` is a placeholder of the right shape.
        device: The torch device of the GPU.
    """

    def __init__(self, data: Any, feed: DeviceFeed[Any], names: list[str]) -> None:
        """Copy the attributes of ``data``, except for the features ``names``, which ``feed`` gathers itself.

        Raises:
            InputError: an attribute is not a tensor or array of numbers.
        """
        self.data, self._feed = data, feed
        self.device: Any = feed.beside.torch_device
        self._state = _state(data)
        self.rest = without(data, names)
        self._rows: list[tuple[_Attribute, DeviceRows]] = []
        for each in list(_attributes(self.rest)):
            if isinstance(each.value, Tensor) and each.value.is_cuda:
                continue  # attributes on a GPU stay there, where PyG's code indexes them
            self._rows.append((each, feed.table(_gathered(each), f"{each.name} of the data")))
            del _store(self.rest, each.key)[each.name]
        for key, store in _stores(data):
            if isinstance(store, NodeStorage):
                _store(self.rest, key).num_nodes = store.num_nodes
            if "edge_index" in store:
                of_all = torch.empty((1, 1), dtype=torch.int64, device=self.device).expand(2, store.num_edges)
                _store(self.rest, key).edge_index = of_all
        self.rest = self.rest.to(self.device)

    def is_of(self, data: Any, feed: DeviceFeed[Any]) -> bool:
        """Return whether these attributes were copied for ``feed`` from ``data`` in its current state."""
        return self._feed is feed and self.data is data and self._state == _state(data)

    def put(self, made: Any, node: Any, edge: Any, source: BatchSource) -> Any:
        """Add the attributes that ``rest`` lacks to a batch that PyG selected from ``rest``, and return the batch on the GPU.

        Args:
            made: Batch to which attributes are added.
            node: (S,) node ids of the batch; for heterogeneous graphs a dictionary by node type.
            edge: (M,) PyG edge ids of the batch; for heterogeneous graphs a dictionary by edge type.
            source: BatchSource of the features that the feed has gathered.
        """
        with self._feed.beside.entered():
            for each, rows in self._rows:
                ids: Any = edge if each.of_edges else node
                ids = ids if each.key is None else ids[each.key]
                _store(made, each.key)[each.name] = as_tensor(rows.gather(ids if ids.is_cuda else ids.numpy()))
        put(made, self.data, source.rows())
        for key, store in _stores(self.data):
            if isinstance(store, NodeStorage) and "num_nodes" not in store and "num_nodes" in _store(made, key):
                del _store(made, key)["num_nodes"]
        return made.to(self.device)


def _stores(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the node and edge stores with their keys."""
    if isinstance(data, Data):
        yield None, data._store
    elif isinstance(data, HeteroData):
        yield from [*data.node_items(), *data.edge_items()]


def _store(data: Any, key: Any) -> Any:
    return data._store if key is None else data[key]


def _attributes(data: Any) -> Iterator[_Attribute]:
    """Yield the attributes that have a row for each node or each edge along the first dimension."""
    for key, store in _stores(data):
        for name, value in store.items():
            if name in ("edge_index", "num_nodes") or data.__cat_dim__(name, value, store) != 0:
                continue
            if isinstance(store, NodeStorage) and store.is_node_attr(name):
                yield _Attribute(key, name, False, value)
            elif isinstance(store, EdgeStorage) and store.is_edge_attr(name):
                yield _Attribute(key, name, True, value)


def _gathered(each: _Attribute) -> Any:
    """Return an attribute as an array whose rows can be gathered.

    Raises:
        InputError: the attribute is not a dense tensor or array of numbers without gradient.
    """
    value = torch.from_numpy(each.value) if isinstance(each.value, np.ndarray) else each.value
    rows = plain_rows(value.contiguous() if type(value) is Tensor and value.layout == torch.strided else value)
    if rows is None:
        of = "" if each.key is None else f" of {each.key if isinstance(each.key, str) else ':'.join(each.key)}"
        kind = f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(
            f'{each.name}{of} is {kind} with device="cuda": a GPU gathers dense rows of numbers that need no gradient; convert it, or leave device out'
        )
    return rows


def _state(data: Any) -> Mapping[Any, Any]:
    """Return the state (``get_state``) of every attribute of ``data``."""
    return {(key, name): get_state(value) for key, store in _stores(data) for name, value in store.items()}
