"""A DGL graph with several types, sampled by hoptrain, and a mini-batch of it as DGL's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hoptrain.dgl.graphs import Converted, adjacency_of, as_ids, ids_and_weights
from hoptrain.dgl.outputs import block_of, graph_of, ids_for, of_mean_one
from hoptrain.engine import HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import join_limited
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers import HeteroMiniBatch, Sampler
from hoptrain.samplers.batch.copies import Copies, distinct_by_type, with_copies
from hoptrain.samplers.hetero import HeteroFanoutSampler
from hoptrain.samplers.loader.given import version_of
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, hetero_items

_KEPT: Any = WeakIdKeyDictionary()
"""A user's graph -> by weights: what it was made of, and what was made of that."""


class HeteroConverted:
    """What was made of a DGL graph with types.

    Attributes:
        graph: with the ids that edges have there, and the weights of the relations that have some.
    """

    def __init__(self, graph: HeteroGraph) -> None:
        """Take the graph."""
        self.graph = graph
        self._prepared: dict[Any, Sampler[Any, Any]] = {}
        self._relations = {relation: Converted(columns, relation_name(relation)) for relation, columns in graph.relations.items()}

    def kept(self, options: Any, make: Callable[[], Sampler[Any, Any]]) -> Sampler[Any, Any]:
        """``make()`` for this graph, or what it gave for the same options before."""
        if options not in self._prepared:
            self._prepared[options] = make().prepare(self.graph, np.zeros(0, np.int64))
        return self._prepared[options]

    def csc_positions(self, relation: Relation, ids: Array) -> Array:
        """The places (N,) of a relation's edges with ``ids`` (N,); those of all its edges are found once.

        Raises:
            InputError: the relation has no edge of such an id.
        """
        return self._relations[relation].csc_positions(ids)


def hetero_converted(g: Any, weights: str | None = None) -> HeteroConverted:
    """What ``g`` is here; kept as long as ``g`` is, and until its edges or their weights are changed.

    Args:
        g: a DGL graph.
        weights: the feature that edges are drawn by, where they have it; a mask is one, too.

    Raises:
        InputError: no edges have such a feature, or weights that are negative.
    """
    values = {relation: g.edges[relation].data[weights] for relation in g.canonical_etypes if weights in g.edges[relation].data}
    if weights is not None and not values:
        names = sorted({name for relation in g.canonical_etypes for name in g.edges[relation].data})
        raise InputError(f"edges have no feature {weights!r}: they have {join_limited(names) or 'none'}; name one of these")
    state = id(g._graph), *((relation, id(own), version_of(own)) for relation, own in values.items())
    kept = _KEPT.setdefault(g, {})
    if weights not in kept or kept[weights][0] != state:
        kept[weights] = state, (g._graph, values), HeteroConverted(_convert(g, values))
    found: HeteroConverted = kept[weights][2]
    return found


def _convert(g: Any, values: Mapping[Relation, Tensor]) -> HeteroGraph:
    columns, ids, weights = {}, {}, {}
    for relation in g.canonical_etypes:
        indptr, indices, edge_ids = adjacency_of(g, relation, "csc")
        columns[relation] = indptr, indices
        own_ids, own_weights = ids_and_weights(edge_ids, values.get(relation))
        if own_ids is not None:
            ids[relation] = own_ids
        if own_weights is not None:
            weights[relation] = own_weights
    return HeteroGraph({kind: int(g.num_nodes(kind)) for kind in g.ntypes}, columns, weights=weights, edge_ids=ids)


def hetero_sampler(
    g: Any, fanouts: Any, kind: type[HeteroFanoutSampler], edge_dir: str, prob: str | None = None, induced: int = 0, **options: Any
) -> tuple[Sampler[Any, Any], HeteroConverted]:
    """The sampler of a ``kind``, with its options, and the graph of hoptrain's, for what DGL's samplers of blocks take.

    With ``induced`` it finds the nodes of subgraphs, which have so many blocks.

    Raises:
        InputError: fanouts that are not of all edge types, or a direction that heterogeneous graphs are not sampled in.
    """
    if edge_dir != "in":
        raise InputError(
            f"edge_dir is {edge_dir!r}: heterogeneous graphs are sampled along edges 'in'; turn the graph round by dgl.reverse"
        )
    made = hetero_converted(g, prob)
    own = fanouts_by_relation(g, fanouts)
    key = kind, induced, *((relation, *numbers) for relation, numbers in own.items()), *options.items()

    def make() -> Sampler[Any, Any]:
        sampler = kind(own, **options)
        return ExcludingSampler(HeteroInducedSampler(sampler, induced) if induced else sampler)

    return made.kept(key, make), made


def fanouts_by_relation(g: Any, fanouts: Any, what: str = "fanouts of a layer") -> Any:
    """Fanouts of each edge type from the seeds outward, of DGL's, which stand in the order of layers, each a number or a dict of all edge types.

    Raises:
        InputError: a layer that lacks an edge type.
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
    """Ids (N,) int64 by type, from DGL's dict of tensors, or from one tensor where there is one type.

    Raises:
        InputError: a tensor, and there are several types; or a type that the graph does not have.
    """
    if not isinstance(values, Mapping):
        if len(types) != 1:
            raise InputError(f"{what} are a tensor: the graph has the types {join_limited(types)}; give a dict by type")
        values = {types[0]: values}
    values = {g.to_canonical_etype(name) if isinstance(types[0], tuple) else name: ids for name, ids in values.items()}
    unknown = [name for name in values if name not in types]
    if unknown:
        raise InputError(f"{what} of {unknown[0]!r}: the graph has the types {join_limited(types)}; name one of these")
    return {name: as_ids(ids) for name, ids in values.items()}


def items_by_type(g: Any, made: HeteroConverted, seed_nodes: Any, exclude_eids: Any) -> tuple[Array, dict[str, Copies]]:
    """What a batch is asked for by, of seeds and excluded edges as DGL has them, by type; and which of the seeds stand there several times.

    Raises:
        InputError: a type, a node or an edge that does not exist.
    """
    seeds, copies = distinct_by_type(by_type(g, seed_nodes, g.ntypes, "seeds"))
    edges = {} if exclude_eids is None else by_type(g, exclude_eids, g.canonical_etypes, "excluded edges")
    return hetero_items(made.graph, seeds, {relation: made.csc_positions(relation, ids) for relation, ids in edges.items()}), copies


def typed_blocks_of(g: Any, batch: HeteroMiniBatch, copies: Mapping[str, Copies], *, weighted: bool) -> tuple[dict[str, Tensor], list[Any]]:
    """Input nodes (S,) by type, and blocks; arguments are those of ``blocks_of``."""
    batch = with_copies(batch, copies) if copies else batch
    nodes = {kind: ids_for(g, ids) for kind, ids in batch.node_ids.items()}
    counts = batch.node_counts
    blocks = []
    for hop, block in enumerate(batch.blocks):
        after, before = ([nodes[kind][: number[kind]] for kind in g.ntypes] for number in (counts[-1 - hop], counts[-2 - hop]))
        edges = [(block[relation], batch.ids_of(relation, block[relation].edge_ids)) for relation in g.canonical_etypes]
        made = block_of(g, after, before, edges)
        for relation, own in block.items() if weighted else ():
            made.edges[relation].data["edge_weights"] = of_mean_one(own)
        blocks.append(made)
    return nodes, blocks


def hetero_subgraph_of(g: Any, batch: HeteroMiniBatch) -> tuple[dict[str, Tensor], Any]:
    """Nodes (S,) by type, and the graph of all edges of the outermost, square blocks."""
    nodes = {kind: ids_for(g, ids) for kind, ids in batch.node_ids.items()}
    edges = [(batch.blocks[0][relation], batch.ids_of(relation, batch.blocks[0][relation].edge_ids)) for relation in g.canonical_etypes]
    return nodes, graph_of(g, [nodes[kind] for kind in g.ntypes], edges)
