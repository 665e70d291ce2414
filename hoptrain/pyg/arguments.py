"""The arguments of torch's ``DataLoader``: what becomes of them here."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import NumNeighbors

from hoptrain.engine import InputError

_WITHOUT_MEANING = ("worker_init_fn", "multiprocessing_context", "pin_memory_device")
"""What hoptrain's workers, which run no torch, have no use for."""


def checked_fanouts(num_neighbors: Any) -> Any:
    """Neighbours for each hop, as PyG takes them.

    Raises:
        InputError: it is no list of integers.
    """
    values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    if not isinstance(values, list | tuple) or not all(isinstance(fanout, int | np.integer) for fanout in values):
        raise InputError(
            f"num_neighbors is {values!r}: it is a list with an integer for each hop, from the seeds outward, such as [15, 10]"
        )
    return num_neighbors


def checked_nodes(given: Any, num_nodes: int, name: str) -> Tensor | None:
    """Ids of vertices, or a mask of all of them, as a tensor; None stays None.

    Raises:
        InputError: neither.
    """
    if given is None:
        return None
    nodes: Tensor = torch.as_tensor(given)
    if nodes.dim() != 1 or nodes.is_floating_point() or (nodes.dtype == torch.bool and len(nodes) != num_nodes):
        shape = f"{nodes.dtype} of shape {tuple(nodes.shape)}"
        raise InputError(f"{name} is {shape}: it is ids of vertices, (N,) integers, or a mask of all {num_nodes:,}; correct it")
    return nodes


def check_lengths(number: int, what: str, **values: Any) -> None:
    """Refuse values that are not one for each.

    Raises:
        InputError: one of them.
    """
    for name, value in values.items():
        if value is not None and len(value) != number:
            raise InputError(f"{name} has {len(value):,} entries for {number:,} {what}: give one for each")


def honoured(kwargs: dict[str, Any], *, filter_per_worker: bool | None = None) -> dict[str, Any]:
    """Those that torch is to get; of others that have no meaning here a warning tells.

    Raises:
        InputError: one that would change results if it were ignored.
    """
    if kwargs.get("custom_cls") is not None:
        raise InputError(
            "custom_cls is given: it is the class of batches from remote stores, which these loaders do not read; leave it out"
        )
    if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
        raise InputError("batch_size is None: a batch has seeds; give their number, or a batch_sampler")
    if kwargs.get("in_order") is False:
        raise InputError("in_order is False: batches come in their order, which makes a run repeatable; leave it out")
    ignored = [name for name in _WITHOUT_MEANING if kwargs.get(name)] + ["filter_per_worker"] * bool(filter_per_worker)
    if ignored:
        warnings.warn(f"without meaning here: {', '.join(ignored)}; workers run no torch, and gather x themselves", stacklevel=4)
    return {name: value for name, value in kwargs.items() if name not in (*_WITHOUT_MEANING, "collate_fn", "dataset")}
