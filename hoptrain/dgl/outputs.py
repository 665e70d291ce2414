"""A mini-batch as DGL's blocks, or as a subgraph of DGL's. Nothing of it stays in the memory of the queue but gathered features.

Features of the graph come along as they do in DGL: looked up when they are asked for.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, MiniBatch
from hoptrain.samplers.batch.copies import Copies, with_copies
from hoptrain.samplers.batch.dgl_compat import import_dgl

dgl: Any = import_dgl()


def blocks_of(g: Any, batch: MiniBatch, copies: Copies | None, *, weighted: bool) -> tuple[Tensor, list[Any]]:
    """Input nodes (S,) and blocks.

    Args:
        g: the DGL graph that was sampled.
        batch: of the distinct seeds.
        copies: which of the seeds stand there several times.
        weighted: whether blocks have ``edata["edge_weights"]``, with the mean 1 over a destination's edges, as DGL's.
    """
    batch = batch if copies is None else with_copies(batch, {"": copies})
    nodes = ids_for(g, batch.node_ids)
    blocks = []
    for block in batch.blocks:
        made = block_of(g, [nodes[: block.num_src]], [nodes[: block.num_dst]], [(block, batch.ids_of(block.edge_ids))])
        if weighted:
            made.edata["edge_weights"] = of_mean_one(block)
        blocks.append(made)
    return nodes, blocks


def block_of(g: Any, sources: list[Tensor], destinations: list[Tensor], edges: list[tuple[Block, Array]]) -> Any:
    """As ``dgl.create_block`` makes one, which takes several times as long: it looks for the largest source, and lays out the types anew each time.

    Args:
        g: the DGL graph that was sampled.
        sources: global ids, of each of its types.
        destinations: the same.
        edges: of each of its edge types the block, and the ids that its edges have in ``g``.
    """
    index = dgl.heterograph_index
    relations = [
        index.create_unitgraph_from_csr(2, block.num_src, block.num_dst, *columns_of(g, block), ["coo", "csr", "csc"], True)
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
    """A block without nodes of these types, those of its sources first: DGL's own methods copy a graph so, and then give it other edges and rows."""
    places = {kind: place for place, kind in enumerate(kinds)}
    ends = [(places[source], len(kinds) + places[destination]) for source, _, destination in relations]
    index = dgl.heterograph_index
    none = torch.empty(0, dtype=torch.int64)
    graph = index.create_heterograph_from_relations(
        dgl.graph_index.from_coo(2 * len(kinds), *map(list, zip(*ends, strict=True)), True),
        [index.create_unitgraph_from_coo(2, 0, 0, none, none, ["coo", "csr", "csc"]) for _ in relations],
        dgl.utils.toindex([0] * 2 * len(kinds), "int64"),
    )
    return dgl.convert.DGLBlock(graph, (list(kinds), list(kinds)), [name for _, name, _ in relations])


def _edge_frames(g: Any, edges: list[tuple[Block, Array]]) -> list[Any]:
    """Of the edges of each type."""
    return [_frame(whole, dgl.EID, ids_for(g, ids)) for whole, (_, ids) in zip(g._edge_frames, edges, strict=True)]


def _frame(whole: Any, name: str, ids: Tensor) -> Any:
    """The rows of a frame of DGL's at ``ids`` (N,), which are a column ``name`` of it, too: ``Frame.subframe``, but without a second copy of each column."""
    frame = dgl.frame.Frame(num_rows=len(ids))
    frame._columns = {key: column.subcolumn(ids) for key, column in whole._columns.items()}
    frame._columns[name] = dgl.frame.Column(ids)
    frame._initializers, frame._default_initializer = whole._initializers, whole._default_initializer
    return frame


def subgraph_of(g: Any, batch: MiniBatch, layout: str = "csc") -> tuple[Tensor, Any]:
    """The nodes (S,) of a batch whose outermost block is square, and the graph of its edges.

    ``layout`` is "csr" where the edges were turned round.
    """
    nodes, block = ids_for(g, batch.node_ids), batch.blocks[0]
    return nodes, graph_of(g, [nodes], [(block, batch.ids_of(block.edge_ids))], layout)


def graph_of(g: Any, nodes: list[Tensor], edges: list[tuple[Block, Array]], layout: str = "csc") -> Any:
    """The graph of square blocks, with the types and the features of ``g``.

    Args:
        g: the DGL graph that was sampled.
        nodes: global ids, of each of its types.
        edges: of each of its edge types the block, and the ids that its edges have in ``g``.
        layout: see ``subgraph_of``.
    """
    index = dgl.heterograph_index
    relations = [
        index.create_unitgraph_from_csr(
            1 if source == destination else 2, block.num_src, block.num_dst, *columns_of(g, block), ["coo", "csr", "csc"], layout == "csc"
        )
        for (source, _, destination), (block, _) in zip(g.canonical_etypes, edges, strict=True)
    ]
    numbers = dgl.utils.toindex([len(ids) for ids in nodes], "int64")
    made = dgl.DGLGraph(index.create_heterograph_from_relations(g._graph.metagraph, relations, numbers), g.ntypes, g.etypes)
    made._node_frames = [_frame(whole, dgl.NID, ids) for whole, ids in zip(g._node_frames, nodes, strict=True)]
    made._edge_frames = _edge_frames(g, edges)
    return made


def ids_for(g: Any, ids: Array) -> Tensor:
    """A copy with the graph's dtype. NumPy makes it: of an array of this size torch's threads are no faster, and wait for each other."""
    return torch.from_numpy(ids.astype(np.int32 if g.idtype == torch.int32 else np.int64))


def columns_of(g: Any, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """As DGL takes compressed columns: of one dtype, and without ids of edges, which count as they stand."""
    return ids_for(g, block.indptr), ids_for(g, block.indices), torch.empty(0, dtype=g.idtype)


def of_mean_one(block: Block) -> Tensor:
    """(M,) float32: the weights, divided by the mean of those of their destination."""
    degrees = np.diff(block.indptr)
    destinations = np.repeat(np.arange(block.num_dst), degrees)
    sums = np.bincount(destinations, block.weights, block.num_dst)
    with np.errstate(invalid="ignore"):  # of a destination without edges
        return torch.from_numpy((block.weights * (degrees / sums)[destinations]).astype(np.float32))
