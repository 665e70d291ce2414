"""Features that workers gather: PyG takes those of a batch's nodes, row by row, and so may a worker."""

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
from hoptrain.samplers.loader.given import Source, plain_rows

_X, _EDGES = "x", "edge_attr"


def features_of(data: Any) -> dict[str, Any]:
    """What ``data`` has of ``x``, by the name of its rows in a batch: ``x``, or for each type of a ``HeteroData`` ``x.TYPE``."""
    if isinstance(data, HeteroData):
        return {f"{_X}.{kind}": data[kind][_X] for kind in data.node_types if _X in data[kind]}
    return {_X: data[_X]} if _X in data else {}


def numbers_of(permutation: Any, own_name: Callable[[Any], Any] = lambda relation: relation) -> dict[str, Any]:
    """The user's numbers of the edges by the name of their rows in a batch, of one type of edges or of several.

    Args:
        permutation: (E,) numbers of the graph's edges, None where they are the same; or these by the user's edge types.
        own_name: what the graph calls one of the user's edge types.
    """
    if isinstance(permutation, dict):
        return {f"{_EDGES}.{relation_name(own_name(relation))}": own for relation, own in permutation.items() if own is not None}
    return {} if permutation is None else {_EDGES: permutation}


def numbers_in(source: Source) -> dict[str, Tensor]:
    """(M,) int64, the user's numbers of a batch's edges where they were looked up, by the graph's edge type, "" of the only one."""
    rows = {name: own for name, own in source.rows().items() if name.endswith(".0") and name.startswith(_EDGES)}
    return {name[len(_EDGES) + 1 : -2]: _owned(own) for name, own in rows.items()}


def _owned(own: Any) -> Tensor:
    """Numbers as int64 in memory of their own, lest one who keeps them keep what a worker would write the next batch to."""
    return own.long() if isinstance(own, Tensor) else torch.from_numpy(own.astype(np.int64))


def rows_to_gather(name: str, x: Any) -> Array | None:
    """A tensor as workers may gather rows of it (``plain_rows``); numbers of edges as narrow as they can be."""
    if name.startswith(_EDGES):  # the loader's own, which nobody changes: also where torch keeps no count of changes (inference mode)
        return np.asarray(x).astype(id_dtype(len(x)), copy=False)
    return plain_rows(x)


def names_of(names: Collection[str]) -> list[str]:
    """Those of the features of nodes among the names of rows."""
    return [name for name in names if not name.startswith(_EDGES)]


def store_of(data: Any, name: str) -> Any:
    """Where ``data`` keeps what is called so."""
    return data[name.partition(".")[2]] if isinstance(data, HeteroData) else data


def without(data: Any, names: Collection[str]) -> Any:
    """The same, but for the features of these names; it says how many nodes it has."""
    other = copy.copy(data)
    for name in names:
        store = store_of(other, name)
        del store[_X]
        store.num_nodes = store_of(data, name).num_nodes
    return other


def put(made: Any, whole: Any, rows: Mapping[str, Array]) -> None:
    """Give the rows to a batch that was made of ``whole`` without them."""
    for name in names_of(rows):
        if "num_nodes" not in store_of(whole, name):
            del store_of(made, name)["num_nodes"]
        store_of(made, name)[_X] = as_tensor(rows[name])
