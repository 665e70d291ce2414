"""A PyG ``Data`` object as a graph, converted once."""

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
from hoptrain.samplers.loader.given import version_of


class Converted(NamedTuple):
    """A graph in the order of its columns.

    Attributes:
        graph: with what edges have of weights and times.
        permutation: (E,) int64, the user's number of each of the graph's edges; None where they are the same.
    """

    graph: Graph
    permutation: Tensor | None


_KEPT: Any = WeakIdKeyDictionary()
"""A user's edges -> what was made of them, by what it depends on besides."""


def homogeneous(data: object) -> Data:
    """The object, if it is a graph of one type.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(data, Data):
        raise InputError(f"data is a {type(data).__name__}: these loaders take a homogeneous Data; use PyG's own for others")
    return data


def converted(
    data: Data,
    *,
    backward: bool = False,
    is_sorted: bool = False,
    weight_attr: str | None = None,
    time_attr: str | None = None,
    untimed: bool = False,
) -> Converted:
    """The graph of ``data``; kept as long as its edges are, and until they are changed.

    Args:
        data: with ``edge_index`` (2, E) or a sparse ``adj_t``.
        backward: with every edge turned round.
        is_sorted: whether the edges are sorted by destination.
        weight_attr: the edges' weights.
        time_attr: times of the edges; of nodes, then an edge has that of its source.
        untimed: every edge has the time 0.

    Raises:
        InputError: it has no edges, or not one value for each of them.
    """
    edges = data.get("edge_index", data.get("adj_t"))
    if edges is None:
        raise InputError("data has neither edge_index nor adj_t: there is nothing to sample from; give one of them")
    # An identity may come again for another object, but not while this one is kept: the values of a key hold them.
    values = [data[name] for name in (weight_attr, time_attr) if name is not None]
    state = (*map(state_of, (edges, *values)), data.num_nodes)
    options = backward, is_sorted, weight_attr, time_attr, untimed
    kept = _KEPT.setdefault(edges, {})
    if options not in kept or kept[options][0] != state:
        check_num_nodes(int(data.num_nodes), MAX_VERTEX)
        check_edges(data, edges, data.num_nodes, data.num_nodes)
        kept[options] = state, _convert(data, *options), values
    found: Converted = kept[options][1]
    return found


def check_edges(store: Any, edges: Any, num_src: int, num_dst: int, of: str = "data") -> None:
    """Refuse what PyG's conversion would read beyond its arrays for.

    Args:
        store: which has them, as ``edge_index`` or ``adj_t``.
        edges: the edges.
        num_src: nodes that may be sources.
        num_dst: nodes that may be destinations.
        of: what ``store`` is to be called.

    Raises:
        InputError: no such edges.
    """
    if edges is not store.get("edge_index"):
        if isinstance(edges, Tensor):
            raise InputError(
                f"adj_t of {of} is a sparse tensor of torch: these loaders read edge_index, or torch-sparse's SparseTensor; give edge_index"
            )
        return
    if edges.dim() != 2 or len(edges) != 2 or edges.is_floating_point():
        raise InputError(
            f"edge_index of {of} is {edges.dtype} of shape {tuple(edges.shape)}: it is (2, E) integers, sources above destinations"
        )
    wrong = ((edges < 0) | (edges >= torch.tensor([[num_src], [num_dst]], device=edges.device))).any(0)
    if wrong.any():
        edge = int(wrong.nonzero()[0])
        src, dst = edges[:, edge].tolist()
        numbers = f"{num_src:,}" if num_src == num_dst else f"{num_src:,} and {num_dst:,}"
        raise InputError(f"edge {edge} leads from node {src} to {dst}: {of} has {numbers} nodes, from 0 on; correct it, or x")


def state_of(value: Any) -> tuple[int, int]:
    """Which object it is, and how often torch has changed it in place."""
    return id(value), version_of(value)


def _convert(data: Data, backward: bool, is_sorted: bool, weight_attr: str | None, time_attr: str | None, untimed: bool) -> Converted:
    times = None if time_attr is None else data[time_attr]
    of_nodes = times is not None and data.is_node_attr(time_attr)
    in_time = {"src_node_time": times} if of_nodes else {"edge_time": times}  # of equal times PyG's "last" takes those that stand last
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
    return Converted(graph, permutation)


def in_order(name: str | None, values: Any, permutation: Tensor | None, num_edges: int) -> Array:
    """A value for each of the graph's edges, from one for each of the user's.

    Raises:
        InputError: there are fewer or more.
    """
    tensor = torch.as_tensor(values).cpu()
    if len(tensor) != num_edges:
        raise InputError(f"{name} has {len(tensor):,} entries for {num_edges:,} edges: give one for each edge, or each node")
    array: Array = (tensor if permutation is None else tensor[permutation]).numpy()
    return array
