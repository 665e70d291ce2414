"""Node features and edge ids that workers look up for a PyG batch, instead of PyG's own code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.loader.external_seeds import BatchSource, plain_rows

_X, _EDGES = "x", "edge_attr"


def get_features(data: Any) -> dict[str, Any]:
    """Return the node features by name: ``x`` of a ``Data``, or ``x.TYPE`` for each node type of a ``HeteroData`` that has features."""
    if isinstance(data, HeteroData):
        return {f"{_X}.{kind}": data[kind][_X] for kind in data.node_types if _X in data[kind]}
    return {_X: data[_X]} if _X in data else {}


def get_edge_ids(permutation: Any, graph_name: Callable[[Any], Any] = lambda relation: relation) -> dict[str, Any]:
    """Return the PyG edge ids that workers look up, by the name of their rows in a batch.

    Args:
        permutation: (E,) PyG id of each edge of the converted graph, or None if the order is unchanged; for a heterogeneous graph a dict of these by PyG edge
            type.
        graph_name: Function from a PyG edge type to the edge type of the converted graph.
    """
    if isinstance(permutation, dict):
        return {f"{_EDGES}.{relation_name(graph_name(relation))}": own for relation, own in permutation.items() if own is not None}
    return {} if permutation is None else {_EDGES: permutation}


def edge_ids_in(source: BatchSource) -> dict[str, Tensor]:
    """Return the PyG ids (M,) int64 of a batch's edges where workers looked them up, by edge type; a homogeneous graph has the type ""."""
    rows = {name: own for name, own in source.rows().items() if name.endswith(".0") and name.startswith(_EDGES)}
    return {name[len(_EDGES) + 1 : -2]: _copy_int64(own) for name, own in rows.items()}


def _copy_int64(own: Any) -> Tensor:
    """Return a copy as an int64 tensor. A view would occupy a queue slot that a worker needs for a later batch."""
    return own.long() if isinstance(own, Tensor) else torch.from_numpy(own.astype(np.int64))


def rows_to_gather(name: str, x: Any) -> Array | None:
    """Return a tensor as an array that workers can gather rows from, or None (``plain_rows``). Edge ids get the narrowest dtype."""
    if name.startswith(
        _EDGES
    ):  # the loader owns edge ids and nothing changes them, so torch's change count (absent in inference mode) is not needed
        return np.asarray(x).astype(id_dtype(len(x)), copy=False)
    return plain_rows(x)


def feature_names(names: Collection[str]) -> list[str]:
    """Return those of ``names`` that are names of node features."""
    return [name for name in names if not name.startswith(_EDGES)]


def get_store(data: Any, name: str) -> Any:
    """Return the PyG store that holds the feature ``name``: the store of a node type, or ``data`` itself if it is homogeneous."""
    return data[name.partition(".")[2]] if isinstance(data, HeteroData) else data


def without(data: Any, names: Collection[str]) -> Any:
    """Return a shallow copy of ``data`` without the features ``names``, with ``num_nodes`` set instead."""
    other = copy.copy(data)
    for name in names:
        store = get_store(other, name)
        del store[_X]
        store.num_nodes = get_store(data, name).num_nodes
    return other


def put(made: Any, whole: Any, rows: Mapping[str, Array]) -> None:
    """Add gathered features to the batch ``made``, which PyG filtered out of ``whole`` without these features."""
    for name in feature_names(rows):
        if "num_nodes" not in get_store(whole, name):
            del get_store(made, name)["num_nodes"]
        get_store(made, name)[_X] = as_tensor(rows[name])
