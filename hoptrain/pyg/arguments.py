"""The arguments of torch's ``DataLoader``: what becomes of them here."""

from __future__ import annotations

import reprlib
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType

from hoptrain.engine import InputError
from hoptrain.engine.errors import join_limited

STRATEGIES = {"uniform": "uniform", "last": "recent"}
"""PyG's word for a strategy -> hoptrain's."""

SET_BY_LOADERS = ("collate_fn", "dataset")
"""Arguments of torch's that the loaders choose; Lightning passes them when it builds a loader again."""

_WITHOUT_MEANING = ("worker_init_fn", "multiprocessing_context", "pin_memory_device")
"""What hoptrain's workers, which run no torch, have no use for."""


def checked_fanouts(num_neighbors: Any, *, is_hetero: bool = False) -> Any:
    """Neighbours for each hop, as PyG takes them; of heterogeneous graphs also by edge type.

    Raises:
        InputError: it is no list of integers.
    """
    values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    lists = {"": values}
    default = getattr(num_neighbors, "default", None)
    if is_hetero and isinstance(values, dict) and (values or default is not None):
        lists = {f" of {join_limited([name])}": own for name, own in values.items()} | ({} if default is None else {" by default": default})
    for of, own in lists.items():
        if not isinstance(own, list | tuple) or not all(isinstance(number, int | np.integer) for number in own):
            by_type = ", or a dict of such lists by edge type" if is_hetero else ""
            raise InputError(
                f"num_neighbors{of} is {own!r}: it is a list with an integer for each hop, from the seeds outward, such as [15, 10]{by_type}"
            )
    return num_neighbors


def check_sampling(data: Any, subgraph_type: Any, strategy: str, time_attr: Any, weight_attr: Any, disjoint: bool, direction: str) -> None:
    """Refuse options of a sampler that would change results if they were ignored.

    Raises:
        InputError: one of them.
    """
    if not isinstance(data, Data | HeteroData):
        raise InputError(f"data is a {type(data).__name__}: these loaders take a Data or a HeteroData; use PyG's own for others")
    if subgraph_type not in [each.value for each in SubgraphType] + list(SubgraphType):
        raise InputError(f"subgraph_type is {subgraph_type!r}: it is {', '.join(each.value for each in SubgraphType)}; choose one")
    if strategy == "last" and time_attr is None:
        raise InputError("temporal_strategy is 'last' without time_attr: nothing says which edge is the last; name the times")
    if strategy not in STRATEGIES:
        raise InputError(f"temporal_strategy is {strategy!r}: it is 'uniform' or 'last'; choose one")
    if direction not in ("forward", "backward"):
        raise InputError(f"sample_direction is {direction!r}: it is 'forward' or 'backward'; choose one")
    known = {name for store in data.stores for name in store}
    for name in (weight_attr, time_attr):
        if name is not None and name not in known:
            raise InputError(f"data has no attribute {name!r}: it has {join_limited(sorted(known))}; name one of these")
    if isinstance(data, HeteroData) and time_attr is not None:
        of_nodes, of_edges = (any(time_attr in store for store in stores) for stores in (data.node_stores, data.edge_stores))
        if of_nodes and of_edges:
            raise InputError(
                f"time_attr is {time_attr!r}: nodes and edges both have it, and one of them says when; rename that of the other"
            )
    if weight_attr is not None and (time_attr is not None or disjoint):
        raise InputError(f"weight_attr {weight_attr!r} with time_attr or disjoint: edges are drawn by weight or by time; leave one out")
    if SubgraphType(subgraph_type) == SubgraphType.induced and (time_attr is not None or disjoint):
        raise InputError("subgraph_type induced with disjoint or time_attr: trees have no edges but their own; choose one")


def checked_nodes(given: Any, num_nodes: int, name: str) -> Tensor | None:
    """Ids of nodes, or a mask of all of them, as a tensor; None stays None.

    Raises:
        InputError: neither.
    """
    if given is None:
        return None
    nodes: Tensor = torch.as_tensor(given)
    if nodes.dim() == 1 and not len(nodes):
        return nodes.long()  # torch's empty tensors are floats unless their dtype is named
    if nodes.dim() != 1 or nodes.is_floating_point() or (nodes.dtype == torch.bool and len(nodes) != num_nodes):
        shape = f"{nodes.dtype} of shape {tuple(nodes.shape)}"
        raise InputError(f"{name} is {shape}: it is ids of nodes, (N,) integers, or a mask of all {num_nodes:,}; correct it")
    return nodes


def checked_seeds(data: Any, given: Any) -> tuple[Any, int]:
    """``input_nodes`` as PyG takes them, and how many they are: of a ``HeteroData`` a type, or a type with nodes of it.

    Raises:
        InputError: neither, or no such type.
    """
    if not isinstance(data, HeteroData):
        nodes = checked_nodes(given, data.num_nodes, "input_nodes")
        return nodes, _number(nodes, data.num_nodes)
    kind, own = (given, None) if isinstance(given, str) else given if isinstance(given, tuple | list) and len(given) == 2 else (None, None)
    if kind not in data.node_types:
        raise InputError(
            f"input_nodes is {_shown(given)}: of a HeteroData it is a type of nodes, or a tuple of a type and nodes of it; the types are "
            f"{join_limited(data.node_types)}"
        )
    nodes = checked_nodes(own, data[kind].num_nodes, f"input_nodes of {kind}")
    return (kind, nodes), _number(nodes, data[kind].num_nodes)


def _number(nodes: Tensor | None, num_nodes: int) -> int:
    return num_nodes if nodes is None else int(nodes.sum()) if nodes.dtype == torch.bool else len(nodes)


def checked_links(data: Any, given: Any) -> tuple[Any, int]:
    """``edge_label_index`` as PyG takes it, and how many links it says; of a ``HeteroData`` it is an edge type, or an edge type with links.

    Raises:
        InputError: neither, or no such type.
    """
    links, what, kind = given, "edge_label_index", None
    if isinstance(data, HeteroData):
        is_pair = isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[0], str)
        kind, links = given if is_pair else (given, None)
        kind = _canonical(data, kind)
        if kind not in data.edge_types:
            raise InputError(
                f"edge_label_index is {_shown(given)}: of a HeteroData it is an edge type, or a tuple of an edge type and links; the types are "
                f"{join_limited(data.edge_types)}"
            )
        data, what = data[kind], f"edge_label_index of {':'.join(kind)}"
    own = data.edge_index if links is None else _integers(links, what)
    if own.dim() != 2 or len(own) != 2:
        raise InputError(f"{what} has shape {tuple(own.shape)}: it is (2, N), sources above destinations; transpose it")
    if links is None:
        return given, own.shape[1]
    return (own if kind is None else (kind, own)), own.shape[1]


def _integers(values: Any, what: str) -> Tensor:
    """Return a tensor of a tensor, an array or lists.

    Raises:
        InputError: it holds something other than integers.
    """
    rule = "it is (2, N) integers, sources above destinations"
    try:
        made: Tensor = torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is {_shown(values)}: {rule} ({error}); correct it") from None
    if not made.numel():
        return made.long()  # torch's empty tensors are floats unless their dtype is named
    if made.is_floating_point() or made.dtype == torch.bool:
        raise InputError(f"{what} is {made.dtype} of shape {tuple(made.shape)}: {rule}; convert it")
    return made


def _shown(value: Any) -> str:
    """In one short line, though tensors are in it."""
    return " ".join(reprlib.repr(value).split())


def _canonical(data: HeteroData, kind: Any) -> Any:
    """An edge type by its three names, as PyG finds it by two where there is one between these types."""
    try:
        return data._to_canonical(*kind) if isinstance(kind, tuple | list) else kind
    except TypeError:
        return kind


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

    A loader that Lightning builds again gets those of the loader before as ``kwargs``, beside those that change.

    Raises:
        InputError: one that would change results if it were ignored.
    """
    kwargs = dict(kwargs)
    while (before := kwargs.pop("kwargs", None)) is not None:
        kwargs = before | kwargs
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
        warnings.warn(f"without meaning here: {', '.join(ignored)}; workers run no torch, and gather x themselves", stacklevel=5)
    return {name: value for name, value in kwargs.items() if name not in (*_WITHOUT_MEANING, *SET_BY_LOADERS)}
