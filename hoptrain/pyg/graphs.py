"""Conversion of a PyG ``Data`` object to a ``Graph``, done once for each object."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data
from torch_geometric.sampler.utils import to_csc

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.machine import check_num_nodes
from hoptrain.kernels.shared.philox import MAX_VERTEX
from hoptrain.samplers.loader.external_seeds import version_of


class ConvertedGraph(NamedTuple):
    """A graph in CSC order that was made from a PyG ``Data``.

    Attributes:
        graph: The graph, with edge weights and times if requested.
        permutation: (E,) int64 PyG edge id of each CSC position; None if ids equal positions.
    """

    graph: Graph
    permutation: Tensor | None


_KEPT: Any = WeakIdKeyDictionary()
"""Edge tensor -> conversion options -> (state of the data at its conversion, converted graph, tensors in that state)."""


def require_homogeneous(data: object) -> Data:
    """Return ``data`` if it is a PyG ``Data``.

    Raises:
        InputError: ``data`` is of another class.
    """
    if not isinstance(data, Data):
        raise InputError(f"data is a {type(data).__name__}: these loaders take a homogeneous Data; use PyG's own loaders for other data")
    return data


def convert(
    data: Data,
    *,
    backward: bool = False,
    is_sorted: bool = False,
    weight_attr: str | None = None,
    time_attr: str | None = None,
    untimed: bool = False,
) -> ConvertedGraph:
    """Convert ``data`` to a ``Graph``. The result is cached until the edges, weights or times change or are deleted.

    Args:
        data: Graph with ``edge_index`` (2, E) or a sparse ``adj_t``.
        backward: Whether to reverse every edge.
        is_sorted: Whether the edges are sorted by destination.
        weight_attr: Name of the edge attribute with the weights.
        time_attr: Name of the edge or node attribute with the times. With node times an edge has the time of its source.
        untimed: Whether every edge gets the time 0.

    Raises:
        InputError: ``data`` has no edges, an edge is invalid, or an attribute has not one value for each edge.
    """
    edges = data.get("edge_index", data.get("adj_t"))
    if edges is None:
        raise InputError("data has neither edge_index nor adj_t: there is nothing to sample from; give one of them")
    # Python may reuse the id of a deleted object; the cache therefore holds a reference to every object whose id is in the state.
    values = [data[name] for name in (weight_attr, time_attr) if name is not None]
    state = (*map(get_state, (edges, *values)), data.num_nodes)
    options = backward, is_sorted, weight_attr, time_attr, untimed
    kept = _KEPT.setdefault(edges, {})
    if options not in kept or kept[options][0] != state:
        check_num_nodes(int(data.num_nodes), MAX_VERTEX)
        check_edges(data, edges, data.num_nodes, data.num_nodes)
        kept[options] = state, _convert(data, *options), values
    found: ConvertedGraph = kept[options][1]
    return found


def check_edges(store: Any, edges: Any, num_src: int, num_dst: int, of: str = "data") -> None:
    """Raise InputError for edges for which PyG's conversion would read out of bounds.

    Args:
        store: PyG store that holds the edges as ``edge_index`` or ``adj_t``.
        edges: Edges to check.
        num_src: Number of nodes that can be sources.
        num_dst: Number of nodes that can be destinations.
        of: Name of ``store`` for the message.

    Raises:
        InputError: the edges have the wrong type or shape, or name a node that does not exist.
    """
    if edges is not store.get("edge_index"):
        if isinstance(edges, Tensor):
            raise InputError(
                f"adj_t of {of} is a torch sparse tensor: these loaders read edge_index, or torch-sparse's SparseTensor; give edge_index"
            )
        return
    if edges.dim() != 2 or len(edges) != 2 or edges.is_floating_point():
        raise InputError(
            f"edge_index of {of} is {edges.dtype} of shape {tuple(edges.shape)}: must be (2, E) integers, sources above destinations; convert it"
        )
    wrong = ((edges < 0) | (edges >= torch.tensor([[num_src], [num_dst]], device=edges.device))).any(0)
    if wrong.any():
        edge = int(wrong.nonzero()[0])
        src, dst = edges[:, edge].tolist()
        numbers = f"{num_src:,}" if num_src == num_dst else f"{num_src:,} sources and {num_dst:,} destinations"
        raise InputError(
            f"edge {edge} leads from node {src} to {dst}: {of} has {numbers} nodes, numbered from 0; fix edge_index, x or num_nodes"
        )


def get_state(value: Any) -> tuple[int, int]:
    """Return the id of ``value`` and torch's count of its in-place changes. Equal results mean unchanged values."""
    return id(value), version_of(value)


def _convert(data: Data, backward: bool, is_sorted: bool, weight_attr: str | None, time_attr: str | None, untimed: bool) -> ConvertedGraph:
    times = None if time_attr is None else data[time_attr]
    of_nodes = times is not None and data.is_node_attr(time_attr)
    in_time = {"src_node_time": times} if of_nodes else {"edge_time": times}  # among equal times PyG's "last" takes the edges stored last
    indptr, indices, permutation = to_csc(data, device="cpu", is_sorted=is_sorted, to_transpose=backward, **in_time)

    def of_edges(name: str) -> Array:
        if data.is_node_attr(name):
            return torch.as_tensor(data[name]).cpu()[indices].numpy()
        return in_order(name, data[name], permutation, len(indices))

    graph = Graph(
        indptr.numpy(),
        indices.numpy(),
        weights=None if weight_attr is None else of_edges(weight_attr),
        times=np.zeros(len(indices), np.int64) if untimed else None if time_attr is None else of_edges(time_attr),
    )
    return ConvertedGraph(graph, permutation)


def in_order(name: str | None, values: Any, permutation: Tensor | None, num_edges: int) -> Array:
    """Return an edge attribute of PyG in the order of the converted graph.

    Args:
        name: Name of the attribute for the message.
        values: (E, ...) values by PyG edge id.
        permutation: (E,) PyG edge id of each CSC position, or None.
        num_edges: Number of edges E.

    Raises:
        InputError: ``values`` has not one entry for each edge.
    """
    tensor = torch.as_tensor(values).cpu()
    if len(tensor) != num_edges:
        raise InputError(
            f"{name} has {len(tensor):,} entries for {num_edges:,} edges: must have one for each; give one for each edge or each node"
        )
    array: Array = (tensor if permutation is None else tensor[permutation]).numpy()
    return array
