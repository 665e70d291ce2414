"""Conversion of a heterogeneous DGL graph, its seeds and its fanouts to the form that hoptrain's samplers take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hoptrain.dgl.graphs import ConvertedGraph, as_ids, get_adjacency, ids_and_weights
from hoptrain.engine import HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import join_limited
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers import Sampler
from hoptrain.samplers.batch.copies import Copies, distinct_by_type
from hoptrain.samplers.hetero import HeteroFanoutSampler
from hoptrain.samplers.loader.external_seeds import version_of
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, hetero_items

_KEPT: Any = WeakIdKeyDictionary()
"""DGL graph -> weight name -> (state of the DGL graph at its conversion, objects in that state, converted graph)."""


class ConvertedHeteroGraph:
    """A ``HeteroGraph`` that was made from a DGL graph, with the samplers prepared for it.

    Attributes:
        graph: The graph with DGL's edge ids, and with the weights of the relations that have some.
    """

    def __init__(self, graph: HeteroGraph) -> None:
        """Wrap a converted graph."""
        self.graph = graph
        self._prepared: dict[Any, Sampler[Any, Any]] = {}
        self._relations = {relation: ConvertedGraph(columns, relation_name(relation)) for relation, columns in graph.relations.items()}

    def get_or_make(self, options: Any, make: Callable[[], Sampler[Any, Any]]) -> Sampler[Any, Any]:
        """Return the sampler for ``options``. It is made by ``make()`` and prepared for this graph on the first call."""
        if options not in self._prepared:
            self._prepared[options] = make().prepare(self.graph, np.zeros(0, np.int64))
        return self._prepared[options]

    def csc_positions(self, relation: Relation, ids: Array) -> Array:
        """Return the CSC positions (N,) of a relation's edges with DGL's ``ids`` (N,).

        Raises:
            InputError: an id belongs to no edge of the relation.
        """
        return self._relations[relation].csc_positions(ids)


def convert_hetero(g: Any, weights: str | None = None) -> ConvertedHeteroGraph:
    """Convert ``g``. The result is cached until its edges or weights change, or ``g`` is deleted.

    Args:
        g: DGL graph.
        weights: Name of the edge feature with the weights, or a mask, by which edges are drawn. Edge types without it are drawn uniformly.

    Raises:
        InputError: no edge type has such a feature, or a weight is negative.
    """
    values = {relation: g.edges[relation].data[weights] for relation in g.canonical_etypes if weights in g.edges[relation].data}
    if weights is not None and not values:
        names = sorted({name for relation in g.canonical_etypes for name in g.edges[relation].data})
        raise InputError(f"edges have no feature {weights!r}: they have {join_limited(names) or 'none'}; name one of these")
    state = id(g._graph), *((relation, id(own), version_of(own)) for relation, own in values.items())
    kept = _KEPT.setdefault(g, {})
    if weights not in kept or kept[weights][0] != state:
        kept[weights] = state, (g._graph, values), ConvertedHeteroGraph(_convert(g, values))
    found: ConvertedHeteroGraph = kept[weights][2]
    return found


def _convert(g: Any, values: Mapping[Relation, Tensor]) -> HeteroGraph:
    columns, ids, weights = {}, {}, {}
    for relation in g.canonical_etypes:
        indptr, indices, edge_ids = get_adjacency(g, relation, "csc")
        columns[relation] = indptr, indices
        own_ids, own_weights = ids_and_weights(edge_ids, values.get(relation))
        if own_ids is not None:
            ids[relation] = own_ids
        if own_weights is not None:
            weights[relation] = own_weights
    return HeteroGraph({kind: int(g.num_nodes(kind)) for kind in g.ntypes}, columns, weights=weights, edge_ids=ids)


def get_hetero_sampler(
    g: Any, fanouts: Any, kind: type[HeteroFanoutSampler], edge_dir: str, prob: str | None = None, induced: int = 0, **options: Any
) -> tuple[Sampler[Any, Any], ConvertedHeteroGraph]:
    """Return a sampler of hoptrain for the arguments of a DGL sampler, and the converted graph.

    Args:
        g: DGL graph.
        fanouts: Fanouts of each layer, in the form that DGL takes.
        kind: Class of the sampler.
        edge_dir: Direction of the edges; must be "in".
        prob: Name of the edge feature with the weights.
        induced: If not 0, the sampler returns the subgraph that the sampled nodes induce, with this number of blocks.
        options: Further arguments of ``kind``.

    Raises:
        InputError: the fanouts lack an edge type, or ``edge_dir`` is not "in".
    """
    if edge_dir != "in":
        raise InputError(f"edge_dir is {edge_dir!r}: must be 'in' for heterogeneous graphs; reverse the graph with dgl.reverse")
    made = convert_hetero(g, prob)
    own = fanouts_by_relation(g, fanouts)
    key = kind, induced, *((relation, *numbers) for relation, numbers in own.items()), *options.items()

    def make() -> Sampler[Any, Any]:
        sampler = kind(own, **options)
        return ExcludingSampler(HeteroInducedSampler(sampler, induced) if induced else sampler)

    return made.get_or_make(key, make), made


def fanouts_by_relation(g: Any, fanouts: Any, what: str = "fanouts of a layer") -> Any:
    """Return the fanouts of each edge type in hoptrain's order, from the seeds outward.

    Args:
        g: DGL graph.
        fanouts: Fanouts in the order of layers, as DGL takes them: for each layer a number or a dictionary by edge type.
        what: Name of the fanouts for the message.

    Raises:
        InputError: a layer lacks an edge type.
    """
    own: dict[Relation, list[int]] = {relation: [] for relation in g.canonical_etypes}
    for layer in reversed(fanouts):
        given = {g.to_canonical_etype(name): n for name, n in layer.items()} if isinstance(layer, Mapping) else dict.fromkeys(own, layer)
        lacking = [relation_name(relation) for relation in own if relation not in given]
        if lacking:
            raise InputError(f"{what} lack {join_limited(lacking)}: give a number for every edge type")
        for relation, numbers in own.items():
            numbers.append(int(given[relation]))
    return own


def by_type(g: Any, values: Any, types: list[Any], what: str) -> dict[Any, Array]:
    """Return ids (N,) int64 by type, from DGL's dictionary of tensors, or from one tensor if there is one type.

    Raises:
        InputError: ``values`` is a tensor although there are several types, or names a type that the graph does not have.
    """
    if not isinstance(values, Mapping):
        if len(types) != 1:
            raise InputError(f"{what} are a tensor: the graph has several types, {join_limited(types)}; give a dict by type")
        values = {types[0]: values}
    values = {g.to_canonical_etype(name) if isinstance(types[0], tuple) else name: ids for name, ids in values.items()}
    unknown = [name for name in values if name not in types]
    if unknown:
        raise InputError(f"{what} of {unknown[0]!r}: the graph has the types {join_limited(types)}; name one of these")
    return {name: as_ids(ids) for name, ids in values.items()}


def items_by_type(g: Any, made: ConvertedHeteroGraph, seed_nodes: Any, exclude_eids: Any) -> tuple[Array, dict[str, Copies]]:
    """Return the items of a batch from DGL's seeds and excluded edges, both by type, and the positions of repeated seeds.

    Raises:
        InputError: a type, a node or an edge does not exist.
    """
    seeds, copies = distinct_by_type(by_type(g, seed_nodes, g.ntypes, "seeds"))
    edges = {} if exclude_eids is None else by_type(g, exclude_eids, g.canonical_etypes, "excluded edges")
    return hetero_items(made.graph, seeds, {relation: made.csc_positions(relation, ids) for relation, ids in edges.items()}), copies
