"""Checks of the arguments that the loaders of ``hoptrain.pyg`` share: seeds, fanouts and options of torch's ``DataLoader``."""

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
"""PyG's ``temporal_strategy`` -> hoptrain's ``strategy``."""

SET_BY_LOADERS = ("collate_fn", "dataset")
"""Arguments of torch's ``DataLoader`` that the loaders set themselves. Lightning passes them when it rebuilds a loader."""

_IGNORED = ("worker_init_fn", "multiprocessing_context", "pin_memory_device")
"""Arguments of torch's ``DataLoader`` that have no effect, because hoptrain's workers do not run torch."""


def check_fanouts(num_neighbors: Any, *, is_hetero: bool = False) -> Any:
    """Return ``num_neighbors`` if PyG accepts it: an integer for each hop, for heterogeneous graphs also a list for each edge type.

    Raises:
        InputError: ``num_neighbors`` is not a list of integers.
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
                f"num_neighbors{of} is {own!r}: must be a list with an integer for each hop, from the seeds outward; give [15, 10]{by_type}"
            )
    return num_neighbors


def check_sampling(data: Any, subgraph_type: Any, strategy: str, time_attr: Any, weight_attr: Any, disjoint: bool, direction: str) -> None:
    """Raise InputError if the arguments of ``NeighborSampler`` contradict each other or do not fit ``data``.

    Raises:
        InputError: an argument is unknown, names a missing attribute, or excludes another argument.
    """
    if not isinstance(data, Data | HeteroData):
        raise InputError(
            f"data is a {type(data).__name__}: these loaders take a Data or a HeteroData; use PyG's own loaders for other data"
        )
    if subgraph_type not in [each.value for each in SubgraphType] + list(SubgraphType):
        raise InputError(f"subgraph_type is {subgraph_type!r}: must be one of {', '.join(each.value for each in SubgraphType)}; choose one")
    if strategy == "last" and time_attr is None:
        raise InputError(
            "temporal_strategy is 'last' without time_attr: the last edge is found by time; set time_attr to the name of the times"
        )
    if strategy not in STRATEGIES:
        raise InputError(f"temporal_strategy is {strategy!r}: must be 'uniform' or 'last'; choose one")
    if direction not in ("forward", "backward"):
        raise InputError(f"sample_direction is {direction!r}: must be 'forward' or 'backward'; choose one")
    known = {name for store in data.stores for name in store}
    for name in (weight_attr, time_attr):
        if name is not None and name not in known:
            raise InputError(f"data has no attribute {name!r}: it has {join_limited(sorted(known))}; name one of these")
    if isinstance(data, HeteroData) and time_attr is not None:
        of_nodes, of_edges = (any(time_attr in store for store in stores) for stores in (data.node_stores, data.edge_stores))
        if of_nodes and of_edges:
            raise InputError(
                f"time_attr is {time_attr!r}: nodes and edges both have it, but only one of them may; rename the attribute of the nodes or the edges"
            )
    if weight_attr is not None and (time_attr is not None or disjoint):
        raise InputError(
            f"weight_attr {weight_attr!r} with time_attr or disjoint: edges are drawn either by weight or by time; leave one out"
        )
    if SubgraphType(subgraph_type) == SubgraphType.induced and (time_attr is not None or disjoint):
        raise InputError("subgraph_type induced with disjoint or time_attr: disjoint trees keep only their sampled edges; choose one")


def check_nodes(given: Any, num_nodes: int, name: str) -> Tensor | None:
    """Return node ids, or a mask over all nodes, as a tensor; None stays None.

    Raises:
        InputError: ``given`` is neither a vector of integers nor a mask of length ``num_nodes``.
    """
    if given is None:
        return None
    nodes: Tensor = torch.as_tensor(given)
    if nodes.dim() == 1 and not len(nodes):
        return nodes.long()  # torch's empty tensors are floats unless their dtype is named
    if nodes.dim() != 1 or nodes.is_floating_point() or (nodes.dtype == torch.bool and len(nodes) != num_nodes):
        shape = f"{nodes.dtype} of shape {tuple(nodes.shape)}"
        raise InputError(f"{name} is {shape}: must be node ids, (N,) integers, or a mask of all {num_nodes:,} nodes; convert it")
    return nodes


def check_seeds(data: Any, given: Any) -> tuple[Any, int]:
    """Return ``input_nodes`` in PyG's form, and the number of seeds. For a ``HeteroData`` they are a node type, or a node type and nodes.

    Raises:
        InputError: ``given`` has another form, or names an unknown node type.
    """
    if not isinstance(data, HeteroData):
        nodes = check_nodes(given, data.num_nodes, "input_nodes")
        return nodes, _num_seeds(nodes, data.num_nodes)
    kind, own = (given, None) if isinstance(given, str) else given if isinstance(given, tuple | list) and len(given) == 2 else (None, None)
    if kind not in data.node_types:
        raise InputError(
            f"input_nodes is {_short_repr(given)}: for a HeteroData it must be a node type, or a tuple of a node type and nodes; name one of "
            f"{join_limited(data.node_types)}"
        )
    nodes = check_nodes(own, data[kind].num_nodes, f"input_nodes of {kind}")
    return (kind, nodes), _num_seeds(nodes, data[kind].num_nodes)


def _num_seeds(nodes: Tensor | None, num_nodes: int) -> int:
    return num_nodes if nodes is None else int(nodes.sum()) if nodes.dtype == torch.bool else len(nodes)


def check_links(data: Any, given: Any) -> tuple[Any, int]:
    """Return ``edge_label_index`` in PyG's form, and the number of links. For a ``HeteroData`` it is an edge type, or an edge type and links.

    Raises:
        InputError: ``given`` has another form, or names an unknown edge type.
    """
    links, what, kind = given, "edge_label_index", None
    if isinstance(data, HeteroData):
        is_pair = isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[0], str)
        kind, links = given if is_pair else (given, None)
        kind = _canonical(data, kind)
        if kind not in data.edge_types:
            raise InputError(
                f"edge_label_index is {_short_repr(given)}: for a HeteroData it must be an edge type, or a tuple of an edge type and links; name one of "
                f"{join_limited(data.edge_types)}"
            )
        data, what = data[kind], f"edge_label_index of {':'.join(kind)}"
    own = data.edge_index if links is None else _as_integers(links, what)
    if own.dim() != 2 or len(own) != 2:
        raise InputError(f"{what} has shape {tuple(own.shape)}: must be (2, N), sources above destinations; transpose it")
    if links is None:
        return given, own.shape[1]
    return (own if kind is None else (kind, own)), own.shape[1]


def _as_integers(values: Any, what: str) -> Tensor:
    """Return a tensor, an array or nested lists of integers as a tensor.

    Raises:
        InputError: ``values`` holds something other than integers.
    """
    rule = "must be (2, N) integers, sources above destinations"
    try:
        made: Tensor = torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is {_short_repr(values)}: {rule} ({error}); give a tensor") from None
    if not made.numel():
        return made.long()  # torch's empty tensors are floats unless their dtype is named
    if made.is_floating_point() or made.dtype == torch.bool:
        raise InputError(f"{what} is {made.dtype} of shape {tuple(made.shape)}: {rule}; convert it")
    return made


def _short_repr(value: Any) -> str:
    """Return a short ``repr`` in one line, also if the value contains tensors."""
    return " ".join(reprlib.repr(value).split())


def _canonical(data: HeteroData, kind: Any) -> Any:
    """Return the full edge type (source, relation, destination) for a shortened one, as PyG completes it."""
    try:
        return data._to_canonical(*kind) if isinstance(kind, tuple | list) else kind
    except TypeError:
        return kind


def check_lengths(number: int, what: str, **values: Any) -> None:
    """Raise InputError if the length of one of ``values`` is not ``number``.

    Args:
        number: Number of seeds or links.
        what: Name of the counted items for the message, such as "seeds".
        values: Values to check, by the name of the argument; None is skipped.

    Raises:
        InputError: a value has a different number of entries.
    """
    for name, value in values.items():
        if value is not None and len(value) != number:
            raise InputError(f"{name} has {len(value):,} entries for {number:,} {what}: give one for each")


def check_arguments(kwargs: dict[str, Any], *, filter_per_worker: bool | None = None) -> dict[str, Any]:
    """Return the arguments to pass to torch's ``DataLoader``, and warn about ignored arguments.

    When Lightning rebuilds a loader, it passes the previous loader's arguments as ``kwargs``, in addition to those that change.

    Raises:
        InputError: an unsupported argument would change the results if it were ignored.
    """
    kwargs = dict(kwargs)
    while (before := kwargs.pop("kwargs", None)) is not None:
        kwargs = before | kwargs
    if kwargs.get("custom_cls") is not None:
        raise InputError(
            "custom_cls is given: it sets the class of batches from remote stores, which these loaders do not read; leave it out"
        )
    if kwargs.get("temporal_comparison") is not None:
        raise InputError(
            f"temporal_comparison is {kwargs['temporal_comparison']!r}: no edge of these loaders is later than its seed, as in PyG; leave it out, "
            "or sample with hoptrain.TemporalSampler(monotone=True), for times that increase along each path to a seed"
        )
    if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
        raise InputError("batch_size is None: a batch needs a number of seeds; give batch_size or a batch_sampler")
    if kwargs.get("in_order") is False:
        raise InputError("in_order is False: batches always come in order, which makes a run repeatable; leave it out")
    ignored = [name for name in _IGNORED if kwargs.get(name)] + ["filter_per_worker"] * bool(filter_per_worker)
    if ignored:
        warnings.warn(f"ignored: {', '.join(ignored)} (hoptrain's workers do not run torch, and gather x themselves)", stacklevel=5)
    return {name: value for name, value in kwargs.items() if name not in (*_IGNORED, *SET_BY_LOADERS)}
