"""Conversion of a sampled mini-batch to DGL's blocks or to a DGL subgraph.

All arrays are copied out of the queue's memory, except for gathered features. Other features of the graph are lazy, as in DGL: they are looked up on
access.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, HeteroMiniBatch
from hoptrain.samplers.batch.copies import Copies, with_copies
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.samplers.batch.minibatch import ONLY, SampledBatch

dgl: Any = import_dgl()


def as_blocks(g: Any, batch: SampledBatch, copies: Mapping[str, Copies], *, weighted: bool) -> tuple[Any, list[Any]]:
    """Return the input nodes (S,) of a mini-batch and its blocks as DGL's. For a ``HeteroMiniBatch`` the nodes are a dictionary by type.

    Args:
        g: DGL graph that was sampled.
        batch: Mini-batch of the distinct seeds.
        copies: Positions of repeated seeds, by node type; a homogeneous graph has the type "".
        weighted: Whether blocks get ``edata["edge_weights"]`` as in DGL: weights whose mean over the edges of a destination is 1.
    """
    batch = with_copies(batch, copies) if copies else batch
    types, relations = _types(g, batch)
    nodes = {kind: as_ids_of(g, ids) for kind, ids in batch.nodes.items()}
    counts, blocks = batch.node_counts, []
    for hop, block in enumerate(batch.hops):
        sources, destinations = ([nodes[kind][: count[kind]] for kind in types] for count in (counts[-1 - hop], counts[-2 - hop]))
        made = make_block(g, sources, destinations, _edges(batch, block, relations))
        for name, relation in zip(g.canonical_etypes, relations, strict=True) if weighted else ():
            made.edges[name].data["edge_weights"] = _weights_of_mean_one(block[relation])
        blocks.append(made)
    return batch.joined(nodes), blocks


def as_subgraph(g: Any, batch: SampledBatch, layout: str = "csc") -> tuple[Any, Any]:
    """Return the nodes (S,) of a mini-batch with a square outermost block, and the graph of that block's edges as DGL's.

    For a ``HeteroMiniBatch`` the nodes are a dictionary by type.

    Args:
        g: DGL graph that was sampled.
        batch: Mini-batch whose outermost block has all edges between its nodes.
        layout: "csr" if the edges were reversed for sampling, otherwise "csc".
    """
    types, relations = _types(g, batch)
    nodes = {kind: as_ids_of(g, ids) for kind, ids in batch.nodes.items()}
    return batch.joined(nodes), make_graph(g, [nodes[kind] for kind in types], _edges(batch, batch.hops[0], relations), layout)


def _types(g: Any, batch: SampledBatch) -> tuple[list[str], list[Any]]:
    """Return the node types and relations of ``batch``, in the order of the graph's types."""
    return (g.ntypes, g.canonical_etypes) if isinstance(batch, HeteroMiniBatch) else ([""], [ONLY])


def _edges(batch: SampledBatch, block: dict[Any, Block], relations: list[Any]) -> list[tuple[Block, Array]]:
    """Return the block and DGL's edge ids of each relation."""
    return [(block[relation], batch.ids_along(relation, block[relation].edge_ids)) for relation in relations]


def make_block(g: Any, sources: list[Tensor], destinations: list[Tensor], edges: list[tuple[Block, Array]]) -> Any:
    """Build the same block as ``dgl.create_block``, several times faster: DGL searches for the largest source and rebuilds the metagraph each time.

    Args:
        g: DGL graph that was sampled.
        sources: Global ids of the sources, for each node type of ``g``.
        destinations: Global ids of the destinations, for each node type of ``g``.
        edges: Block and edge ids in ``g``, for each edge type of ``g``.
    """
    index = dgl.heterograph_index
    relations = [
        index.create_unitgraph_from_csr(2, block.num_src, block.num_dst, *_as_csc(g, block), ["coo", "csr", "csc"], True)
        for block, _ in edges
    ]
    numbers = dgl.utils.toindex([len(ids) for ids in (*sources, *destinations)], "int64")
    empty = _block_of_types(tuple(g.ntypes), tuple(g.canonical_etypes))
    made = copy(empty)
    made._graph = index.create_heterograph_from_relations(empty._graph.metagraph, relations, numbers)
    made._node_frames = [_frame(g._node_frames[kind], dgl.NID, ids) for own in (sources, destinations) for kind, ids in enumerate(own)]
    made._edge_frames = _edge_frames(g, edges)
    return made


@cache
def _block_of_types(kinds: tuple[str, ...], relations: tuple[tuple[str, str, str], ...]) -> Any:
    """Return a block without nodes that ``make_block`` copies and fills, as DGL's own methods do. Node types of sources are numbered first."""
    numbers = {kind: number for number, kind in enumerate(kinds)}
    ends = [(numbers[source], len(kinds) + numbers[destination]) for source, _, destination in relations]
    index = dgl.heterograph_index
    none = torch.empty(0, dtype=torch.int64)
    graph = index.create_heterograph_from_relations(
        dgl.graph_index.from_coo(2 * len(kinds), *map(list, zip(*ends, strict=True)), True),
        [index.create_unitgraph_from_coo(2, 0, 0, none, none, ["coo", "csr", "csc"]) for _ in relations],
        dgl.utils.toindex([0] * 2 * len(kinds), "int64"),
    )
    return dgl.convert.DGLBlock(graph, (list(kinds), list(kinds)), [name for _, name, _ in relations])


def _edge_frames(g: Any, edges: list[tuple[Block, Array]]) -> list[Any]:
    """Return the frame of the edge features for each edge type."""
    return [_frame(whole, dgl.EID, as_ids_of(g, ids)) for whole, (_, ids) in zip(g._edge_frames, edges, strict=True)]


def _frame(whole: Any, name: str, ids: Tensor) -> Any:
    """Return the rows ``ids`` (N,) of a DGL frame, with ``ids`` as column ``name``. Unlike ``Frame.subframe`` it copies no column twice."""
    frame = dgl.frame.Frame(num_rows=len(ids))
    frame._columns = {key: column.subcolumn(ids) for key, column in whole._columns.items()}
    frame._columns[name] = dgl.frame.Column(ids)
    frame._initializers, frame._default_initializer = whole._initializers, whole._default_initializer
    return frame


def make_graph(g: Any, nodes: list[Tensor], edges: list[tuple[Block, Array]], layout: str = "csc") -> Any:
    """Return a DGL graph of square blocks, with the types and features of ``g``.

    Args:
        g: DGL graph that was sampled.
        nodes: Global ids, for each node type of ``g``.
        edges: Square block and edge ids in ``g``, for each edge type of ``g``.
        layout: "csr" if the edges were reversed for sampling, otherwise "csc".
    """
    index = dgl.heterograph_index
    relations = [
        index.create_unitgraph_from_csr(
            1 if source == destination else 2, block.num_src, block.num_dst, *_as_csc(g, block), ["coo", "csr", "csc"], layout == "csc"
        )
        for (source, _, destination), (block, _) in zip(g.canonical_etypes, edges, strict=True)
    ]
    numbers = dgl.utils.toindex([len(ids) for ids in nodes], "int64")
    made = dgl.DGLGraph(index.create_heterograph_from_relations(g._graph.metagraph, relations, numbers), g.ntypes, g.etypes)
    made._node_frames = [_frame(whole, dgl.NID, ids) for whole, ids in zip(g._node_frames, nodes, strict=True)]
    made._edge_frames = _edge_frames(g, edges)
    return made


def as_ids_of(g: Any, ids: Array) -> Tensor:
    """Return a copy of ``ids`` with the id dtype of ``g``.

    NumPy makes the copy: for arrays of this size torch's threads are no faster, and they wait for each other.
    """
    return torch.from_numpy(ids.astype(np.int32 if g.idtype == torch.int32 else np.int64))


def _as_csc(g: Any, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Return the CSC arrays of a block for DGL: of one dtype, with the edge ids 0, 1, 2, ...

    DGL assumes these ids if none are given, but its libxsmm kernels on a CPU, which sum edge values, read the array.
    """
    return as_ids_of(g, block.indptr), as_ids_of(g, block.indices), torch.arange(block.num_edges, dtype=g.idtype)


def _weights_of_mean_one(block: Block) -> Tensor:
    """Return the edge weights (M,) float32, scaled so that their mean over the edges of each destination is 1."""
    degrees = np.diff(block.indptr)
    destinations = np.repeat(np.arange(block.num_dst), degrees)
    sums = np.bincount(destinations, block.weights, block.num_dst)
    with np.errstate(invalid="ignore"):  # 0 / 0 for a destination without edges
        return torch.from_numpy((block.weights * (degrees / sums)[destinations]).astype(np.float32))
