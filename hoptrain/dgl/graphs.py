"""A DGL graph as a graph of hoptrain's, converted once."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import join_limited
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers.loader.given import version_of

Kept = TypeVar("Kept")

_LAYOUTS = {"in": "csc", "out": "csr"}
"""DGL's word for the neighbours of a node -> where it keeps these beside each other."""

_KEPT: Any = WeakIdKeyDictionary()
"""A user's graph -> by direction and weights: what it was made of, and what was made of that."""


class Converted:
    """What was made of a DGL graph.

    Attributes:
        graph: with the ids that edges have there, and their weights; or one relation of a heterogeneous graph, called ``name``.
    """

    def __init__(self, graph: Graph | RelationColumns, name: str = "") -> None:
        """Take the graph."""
        self.graph: Any = graph
        self._of = f" of {name}" if name else ""
        self._kept: dict[Any, Any] = {}

    def kept(self, options: Any, make: Callable[[], Kept]) -> Kept:
        """``make()``, or what it gave for this graph and the same options before."""
        if options not in self._kept:
            self._kept[options] = make()
        kept: Kept = self._kept[options]
        return kept

    def csc_positions(self, ids: Array) -> Array:
        """The places (N,) of the edges with ``ids`` (N,); those of all edges are found once, 4 or 8 bytes an edge.

        Raises:
            InputError: the graph has no edge of such an id.
        """
        wrong = ids[(ids < 0) | (ids >= self.graph.num_edges)]
        if len(wrong):
            raise InputError(
                f"edge {wrong[0]}{self._of} does not exist: there are 0 to {self.graph.num_edges - 1}; correct it or leave it out"
            )
        places: Array = ids if self.graph.edge_ids is None else self._places[ids]
        return places

    @cached_property
    def _places(self) -> Array:
        places: Array = np.empty_like(self.graph.edge_ids)
        places[self.graph.edge_ids] = np.arange(len(places), dtype=places.dtype)
        return places


def on_host(g: Any) -> Any:
    """The graph, if hoptrain can read it.

    Raises:
        InputError: it is no DGL graph, a block, or on a device.
    """
    if not hasattr(g, "canonical_etypes") or g.is_block:
        raise InputError(f"graph is a {type(g).__name__}: these samplers take a DGLGraph; give one")
    if g.device.type != "cpu":
        raise InputError(f"graph is on {g.device}: it is sampled on the host, and device= moves the batches; give it as graph.cpu()")
    return g


def is_hetero(g: Any) -> bool:
    """Whether the graph has several types, of nodes or of edges."""
    return len(g.canonical_etypes) != 1 or len(g.ntypes) != 1


def homogeneous(g: Any) -> Any:
    """The graph, if it is one of a single type.

    Raises:
        InputError: it is a typed one; as ``on_host``.
    """
    if is_hetero(on_host(g)):
        raise InputError(
            f"graph has the edge types {join_limited(g.canonical_etypes)}: this one takes graphs of one type, as DGL's does; give dgl.to_homogeneous(g)"
        )
    return g


def converted(g: Any, edge_dir: str = "in", weights: str | None = None) -> Converted:
    """What ``g`` is here; kept as long as ``g`` is, and until its edges or their weights are changed.

    Args:
        g: a DGL graph of one type of nodes and of edges.
        edge_dir: "in"; or "out", then with every edge turned round.
        weights: the feature of the edges that they are drawn by; a mask is one, too.

    Raises:
        InputError: a graph or a name that cannot be taken, weights that are negative.
    """
    return relation_converted(homogeneous(g), g.canonical_etypes[0], edge_dir, weights)


def relation_converted(g: Any, relation: tuple[str, str, str], edge_dir: str, weights: str | None = None) -> Converted:
    """The same of the edges of one type, which of a graph with several types are ``RelationColumns``."""
    if edge_dir not in _LAYOUTS:
        raise InputError(f"edge_dir is {edge_dir!r}: neighbours are found along edges 'in' or 'out'; choose one")
    values = None if weights is None else feature_of_edges(g, relation, weights)
    # An identity may come again for another object, but not while this one is kept.
    state = id(g._graph), id(values), version_of(values)
    kept = _KEPT.setdefault(g, {})
    key = relation, edge_dir, weights
    if key not in kept or kept[key][0] != state:
        kept[key] = state, (g._graph, values), Converted(_convert(g, relation, edge_dir, values), relation_name(relation) * is_hetero(g))
    found: Converted = kept[key][2]
    return found


def adjacency_of(g: Any, relation: tuple[str, str, str], layout: str) -> tuple[Array, Array, Array]:
    """Where the columns (or rows) of an edge type begin, their entries, and the ids of these edges; of a graph that is held to another layout, too."""
    allowed = {name for names in g.formats().values() for name in names}
    indptr, indices, edge_ids = (g if layout in allowed else g.formats(layout)).adj_tensors(layout, etype=relation)
    return indptr.numpy(), indices.numpy(), edge_ids.numpy()


def feature_of_edges(g: Any, relation: tuple[str, str, str], name: str) -> Any:
    """A feature of the edges of one type, one number for each.

    Raises:
        InputError: there is none of this name, or one of another shape.
    """
    data = g.edges[relation].data
    of = f" of {relation_name(relation)}" * is_hetero(g)
    if name not in data:
        raise InputError(f"edges{of} have no feature {name!r}: they have {join_limited(data) or 'none'}; name one of these")
    if data[name].numel() != g.num_edges(relation):
        raise InputError(
            f"the feature {name!r}{of} has the shape {tuple(data[name].shape)}: edges are chosen by one number each; give such a feature"
        )
    return data[name]


def _convert(g: Any, relation: tuple[str, str, str], edge_dir: str, values: Any) -> Graph | RelationColumns:
    indptr, indices, edge_ids = adjacency_of(g, relation, _LAYOUTS[edge_dir])
    ids, weights = ids_and_weights(edge_ids, values)
    if is_hetero(g):
        return RelationColumns(indptr, indices, int(g.num_nodes(relation[0 if edge_dir == "in" else 2])), weights=weights, edge_ids=ids)
    graph = Graph(indptr, indices, weights=weights)
    # DGL's ids are trusted: to see that no two are the same they would have to be sorted.
    return Graph(graph.indptr, graph.indices, weights=graph.weights, edge_ids=ids, is_sorted=graph.is_sorted, validate=False)


def ids_and_weights(edge_ids: Array, values: Any) -> tuple[Array | None, Array | None]:
    """The ids (E,) of the edges at each place, None where a place is its id, and their weights by place, from the feature (E,) of edges by id."""
    in_order = len(edge_ids) == 0 or bool((edge_ids == np.arange(len(edge_ids))).all())
    ids = None if in_order else edge_ids.astype(id_dtype(len(edge_ids)))
    if values is None:
        return ids, None
    values = values.detach().reshape(-1)
    weights = (values if values.dtype in (torch.float32, torch.float64) else values.float()).numpy()
    return ids, weights if ids is None else weights[ids]


def as_ids(ids: Any) -> Array:
    """Return ids (N,) int64, from a tensor, an array, a list or one number, as DGL takes them.

    Raises:
        InputError: ids by type, of a graph with one; or something other than integers.
    """
    if isinstance(ids, Mapping):
        raise InputError(f"ids are a dict of {', '.join(map(str, ids))}: those of heterogeneous graphs; give a tensor")
    try:
        tensor = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"ids are {reprlib.repr(ids)}: ids are (N,) integers; give a tensor of them") from None
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    # torch's empty tensors are floats unless their dtype is named
    if tensor.dim() != 1 or (len(tensor) and (tensor.is_floating_point() or tensor.dtype == torch.bool)):
        raise InputError(f"ids are {tensor.dtype} of shape {tuple(tensor.shape)}: ids are (N,) integers; give a tensor of them")
    array: Array = tensor.cpu().numpy().astype(np.int64, copy=False)
    return array
