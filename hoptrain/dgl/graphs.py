"""Conversion of a DGL graph to a ``Graph``, done once for each graph."""

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
from hoptrain.samplers.loader.external_seeds import version_of

Kept = TypeVar("Kept")

_LAYOUTS = {"in": "csc", "out": "csr"}
"""DGL's ``edge_dir`` -> DGL's sparse format in which the neighbours of a node are contiguous."""

_KEPT: Any = WeakIdKeyDictionary()
"""DGL graph -> (edge type, direction, weight name) -> (state of the DGL graph at its conversion, objects in that state, converted graph)."""


class ConvertedGraph:
    """A ``Graph``, or one relation of a heterogeneous graph, that was made from a DGL graph, with the objects prepared for it.

    Attributes:
        graph: The graph or relation with DGL's edge ids and, if requested, weights.
    """

    def __init__(self, graph: Graph | RelationColumns, name: str = "") -> None:
        """Wrap a converted graph; ``name`` is the relation's name in messages."""
        self.graph: Any = graph
        self._of = f" of {name}" if name else ""
        self._kept: dict[Any, Any] = {}

    def get_or_make(self, options: Any, make: Callable[[], Kept]) -> Kept:
        """Return the object for ``options``. The first call makes it by ``make()``."""
        if options not in self._kept:
            self._kept[options] = make()
        kept: Kept = self._kept[options]
        return kept

    def csc_positions(self, ids: Array) -> Array:
        """Return the CSC positions (N,) of the edges with DGL's ``ids`` (N,).

        The first call may build an index of 4 or 8 bytes per edge.

        Raises:
            InputError: an id belongs to no edge of the graph.
        """
        wrong = ids[(ids < 0) | (ids >= self.graph.num_edges)]
        if len(wrong):
            raise InputError(
                f"edge {wrong[0]}{self._of} does not exist: ids must be in [0, {self.graph.num_edges - 1}]; fix the id or leave it out"
            )
        places: Array = ids if self.graph.edge_ids is None else self._places[ids]
        return places

    @cached_property
    def _places(self) -> Array:
        places: Array = np.empty_like(self.graph.edge_ids)
        places[self.graph.edge_ids] = np.arange(len(places), dtype=places.dtype)
        return places


def on_host(g: Any) -> Any:
    """Return ``g`` if it is a DGL graph in host memory.

    Raises:
        InputError: ``g`` is not a DGL graph, is a block, or is on a GPU.
    """
    if not hasattr(g, "canonical_etypes") or g.is_block:
        raise InputError(f"graph is a {type(g).__name__}: must be a DGLGraph; give one")
    if g.device.type != "cpu":
        raise InputError(
            f"graph is on {g.device}: must be in host memory, since the host samples; give graph.cpu(), and device= to move batches"
        )
    return g


def is_hetero(g: Any) -> bool:
    """Return whether the graph has several node types or edge types."""
    return len(g.canonical_etypes) != 1 or len(g.ntypes) != 1


def require_homogeneous(g: Any) -> Any:
    """Return ``g`` if it is a DGL graph in host memory with one node type and one edge type.

    Raises:
        InputError: ``g`` is heterogeneous, is not a DGL graph, is a block, or is on a GPU.
    """
    if is_hetero(on_host(g)):
        raise InputError(
            f"graph has the edge types {join_limited(g.canonical_etypes)}: must have one node type and one edge type, as in DGL; "
            "give dgl.to_homogeneous(g)"
        )
    return g


def convert(g: Any, edge_dir: str = "in", weights: str | None = None) -> ConvertedGraph:
    """Convert ``g`` to a ``Graph``. The result is cached until its edges or weights change, or ``g`` is deleted.

    Args:
        g: DGL graph with one node type and one edge type.
        edge_dir: "in", or "out" to reverse every edge.
        weights: Name of the edge feature with the weights, or a mask, by which edges are drawn.

    Raises:
        InputError: hoptrain does not support the graph, the feature does not exist, or a weight is negative.
    """
    return convert_relation(require_homogeneous(g), g.canonical_etypes[0], edge_dir, weights)


def convert_relation(g: Any, relation: tuple[str, str, str], edge_dir: str, weights: str | None = None) -> ConvertedGraph:
    """Convert the edges of one type, as ``convert`` does for a homogeneous graph. The edges of a heterogeneous graph become ``RelationColumns``."""
    if edge_dir not in _LAYOUTS:
        raise InputError(f"edge_dir is {edge_dir!r}: must be 'in' or 'out'; choose one")
    values = None if weights is None else get_edge_feature(g, relation, weights)
    # Python may reuse the id of a deleted object; the cache therefore holds a reference to every object whose id is in the state.
    state = id(g._graph), id(values), version_of(values)
    kept = _KEPT.setdefault(g, {})
    key = relation, edge_dir, weights
    if key not in kept or kept[key][0] != state:
        kept[key] = (
            state,
            (g._graph, values),
            ConvertedGraph(_convert(g, relation, edge_dir, values), relation_name(relation) * is_hetero(g)),
        )
    found: ConvertedGraph = kept[key][2]
    return found


def get_adjacency(g: Any, relation: tuple[str, str, str], layout: str) -> tuple[Array, Array, Array]:
    """Return offsets, neighbours and edge ids of an edge type in ``layout`` ("csc" or "csr"), also if ``g`` does not allow that format."""
    allowed = {name for names in g.formats().values() for name in names}
    indptr, indices, edge_ids = (g if layout in allowed else g.formats(layout)).adj_tensors(layout, etype=relation)
    return indptr.numpy(), indices.numpy(), edge_ids.numpy()


def get_edge_feature(g: Any, relation: tuple[str, str, str], name: str) -> Any:
    """Return an edge feature with one number for each edge of a type.

    Raises:
        InputError: the edge type has no feature of this name, or the feature has several numbers for each edge.
    """
    data = g.edges[relation].data
    of = f" of {relation_name(relation)}" * is_hetero(g)
    if name not in data:
        raise InputError(f"edges{of} have no feature {name!r}: they have {join_limited(data) or 'none'}; name one of these")
    if data[name].numel() != g.num_edges(relation):
        raise InputError(
            f"the feature {name!r}{of} has the shape {tuple(data[name].shape)}: must have one number for each edge; name such a feature"
        )
    return data[name]


def _convert(g: Any, relation: tuple[str, str, str], edge_dir: str, values: Any) -> Graph | RelationColumns:
    indptr, indices, edge_ids = get_adjacency(g, relation, _LAYOUTS[edge_dir])
    ids, weights = ids_and_weights(edge_ids, values)
    if is_hetero(g):
        return RelationColumns(indptr, indices, int(g.num_nodes(relation[0 if edge_dir == "in" else 2])), weights=weights, edge_ids=ids)
    graph = Graph(indptr, indices, weights=weights)
    # validate=False: checking that DGL's ids are distinct would need a sort.
    return Graph(graph.indptr, graph.indices, weights=graph.weights, edge_ids=ids, is_sorted=graph.is_sorted, validate=False)


def ids_and_weights(edge_ids: Array, values: Any) -> tuple[Array | None, Array | None]:
    """Return edge ids (E,) and weights (E,) by CSC position; the ids are None if they equal the positions. ``values`` (E,) are weights by edge id."""
    in_order = len(edge_ids) == 0 or bool((edge_ids == np.arange(len(edge_ids))).all())
    ids = None if in_order else edge_ids.astype(id_dtype(len(edge_ids)))
    if values is None:
        return ids, None
    values = values.detach().reshape(-1)
    weights = (values if values.dtype in (torch.float32, torch.float64) else values.float()).numpy()
    return ids, weights if ids is None else weights[ids]


def as_ids(ids: Any) -> Array:
    """Return ids (N,) int64 from a tensor, an array, a list or one number.

    Raises:
        InputError: ``ids`` is a dictionary by type, or holds something other than integers.
    """
    if isinstance(ids, Mapping):
        raise InputError(f"ids are a dict of {', '.join(map(str, ids))}: only heterogeneous graphs have ids by type; give a tensor")
    try:
        tensor = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"ids are {reprlib.repr(ids)}: must be (N,) integers; give a tensor of them") from None
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    # torch's empty tensors are floats unless their dtype is named
    if tensor.dim() != 1 or (len(tensor) and (tensor.is_floating_point() or tensor.dtype == torch.bool)):
        raise InputError(f"ids are {tensor.dtype} of shape {tuple(tensor.shape)}: must be (N,) integers; give a tensor of them")
    array: Array = tensor.cpu().numpy().astype(np.int64, copy=False)
    return array
