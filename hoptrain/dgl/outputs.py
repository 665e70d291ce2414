"""A mini-batch as DGL's blocks, or as a subgraph of DGL's. Nothing of it stays in the memory of the queue but gathered features.

Features of the graph come along as they do in DGL: looked up when they are asked for.
"""

from __future__ import annotations

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
    batch = batch if copies is None else with_copies(batch, copies)
    nodes = ids_for(g, batch.node_ids)
    blocks = []
    for block in batch.blocks:
        made = block_of(g, [nodes[: block.num_src]], [nodes[: block.num_dst]], [(block, batch.ids_of(block.edge_ids))])
        if weighted:
            made.edata["edge_weights"] = of_mean_one(block)
        blocks.append(made)
    return nodes, blocks


def block_of(g: Any, sources: list[Tensor], destinations: list[Tensor], edges: list[tuple[Block, Array]]) -> Any:
    """As ``dgl.create_block`` makes one, which takes thrice as long: it looks for the largest source, and lays out the types anew each time.

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
    places = {kind: place for place, kind in enumerate(g.ntypes)}
    ends = tuple((places[source], len(places) + places[destination]) for source, _, destination in g.canonical_etypes)
    return dgl.convert.DGLBlock(
        index.create_heterograph_from_relations(_graph_of_types(2 * len(places), ends), relations, numbers),
        (g.ntypes, g.ntypes),
        g.etypes,
        dgl.utils.extract_node_subframes_for_block(g, sources, destinations),
        dgl.utils.extract_edge_subframes(g, [ids_for(g, edge_ids) for _, edge_ids in edges]),
    )


@cache
def _graph_of_types(number: int, ends: tuple[tuple[int, int], ...]) -> Any:
    """DGL's graph of the types in a block: those of its sources first."""
    return dgl.graph_index.from_coo(number, *map(list, zip(*ends, strict=True)), True)


def subgraph_of(g: Any, batch: MiniBatch, layout: str = "csc") -> tuple[Tensor, Any]:
    """The vertices (S,) of a batch whose outermost block is square, and the graph of its edges.

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
    edge_frames = dgl.utils.extract_edge_subframes(g, [ids_for(g, edge_ids) for _, edge_ids in edges])
    dgl.utils.set_new_frames(made, node_frames=dgl.utils.extract_node_subframes(g, nodes), edge_frames=edge_frames)
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
