"""Graphs and batches by relation, so that one function serves plain and heterogeneous ones: a plain one has the type "" and the relation ``ONLY``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import ONLY, Block, MiniBatch, nested_blocks

AnyGraph = TypeVar("AnyGraph", Graph, HeteroGraph)
AnyBatch = TypeVar("AnyBatch", MiniBatch, HeteroMiniBatch)


class Parts(NamedTuple):
    """The structure of a batch.

    Attributes:
        node_ids: (S_t,) global ids of each type's nodes.
        seed_counts: number of seeds of each type.
        hops: blocks by relation, the outermost hop first; of a nested batch that hop alone.
    """

    node_ids: dict[str, Array]
    seed_counts: dict[str, int]
    hops: Sequence[dict[Relation, Block]]


def columns_of(graph: Graph | HeteroGraph) -> Mapping[Relation, Graph | RelationColumns]:
    """Return the edges of each relation."""
    return graph.relations if isinstance(graph, HeteroGraph) else {ONLY: graph}


def num_nodes_of(graph: Graph | HeteroGraph) -> Mapping[str, int]:
    """Return the number of nodes of each type."""
    return graph.num_nodes if isinstance(graph, HeteroGraph) else {"": graph.num_nodes}


def seeds_of(graph: Graph | HeteroGraph, nodes: Sequence[tuple[str, Array]]) -> Array:
    """Return nodes of some types, one after another, as the graph's samplers take them for seeds."""
    if not isinstance(graph, HeteroGraph):
        return nodes[0][1] if len(nodes) == 1 else np.concatenate([ids for _, ids in nodes])
    return np.concatenate([graph.numbered({kind: ids}) for kind, ids in nodes])


def parts_of(batch: MiniBatch | HeteroMiniBatch) -> Parts:
    """Return the nodes and blocks of a batch, without copying them."""
    if isinstance(batch, HeteroMiniBatch):
        return Parts(batch.node_ids, batch.seed_counts, batch.blocks[:1] if batch.nested else batch.blocks)
    blocks = batch.blocks[:1] if batch.nested else batch.blocks
    return Parts({"": batch.node_ids}, {"": batch.num_seeds}, [{ONLY: block} for block in blocks])


def with_parts(batch: AnyBatch, parts: Parts, **changes: Any) -> AnyBatch:
    """Return a batch with other nodes and blocks, and other ``changes``; blocks of a nested batch have as many sources and destinations as before."""
    if isinstance(batch, HeteroMiniBatch):
        hops = nested_hops(parts.hops[0], batch.node_counts) if batch.nested else tuple(parts.hops)
        return replace(batch, node_ids=parts.node_ids, blocks=hops, **changes)
    blocks = tuple(hop[ONLY] for hop in parts.hops)
    if batch.nested:
        blocks = nested_blocks(blocks[0], [block.num_src for block in batch.blocks], batch.num_seeds)
    return replace(batch, node_ids=parts.node_ids[""], blocks=blocks, **changes)
