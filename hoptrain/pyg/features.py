"""Features that workers gather: PyG takes those of a batch's vertices, row by row, and so may a worker."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from torch_geometric.data import HeteroData

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.transfer import as_tensor

_X = "x"


def features_of(data: Any) -> dict[str, Any]:
    """What ``data`` has of ``x``, by the name of its rows in a batch: ``x``, or for each type of a ``HeteroData`` ``x.TYPE``."""
    if isinstance(data, HeteroData):
        return {f"{_X}.{kind}": data[kind][_X] for kind in data.node_types if _X in data[kind]}
    return {_X: data[_X]} if _X in data else {}


def store_of(data: Any, name: str) -> Any:
    """Where ``data`` keeps what is called so."""
    return data[name.partition(".")[2]] if isinstance(data, HeteroData) else data


def without(data: Any, names: Collection[str]) -> Any:
    """The same, but for the features of these names; it says how many vertices it has."""
    other = copy.copy(data)
    for name in names:
        store = store_of(other, name)
        del store[_X]
        store.num_nodes = store_of(data, name).num_nodes
    return other


def put(made: Any, whole: Any, rows: Mapping[str, Array]) -> None:
    """Give the rows to a batch that was made of ``whole`` without them."""
    for name, own in rows.items():
        if "num_nodes" not in store_of(whole, name):
            del store_of(made, name)["num_nodes"]
        store_of(made, name)[_X] = as_tensor(own)
