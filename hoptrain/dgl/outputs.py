"""A mini-batch as DGL's blocks, or as a subgraph of DGL's. Nothing of it stays in the memory of the queue but gathered features.

Features of the graph come along as they do in DGL: looked up when they are asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hoptrain.dgl.copies import Copies, with_copies
from hoptrain.samplers import Block, MiniBatch
from hoptrain.samplers.batch.dgl_compat import import_dgl

dgl = import_dgl()


def blocks_of(g: Any, batch: MiniBatch, copies: Copies | None, *, weighted: bool) -> tuple[Tensor, list[Any], Tensor | None]:
    """Input nodes (S,), blocks, and the features that were gathered, (S, F) or None.

    Args:
        g: the DGL graph that was sampled.
        batch: of the distinct seeds.
        copies: which of the seeds stand there several times.
        weighted: whether blocks have ``edata["edge_weights"]``, with the mean 1 over a destination's edges, as DGL's.
    """
    tensors: MiniBatch = batch.to("cpu")
    tensors = tensors if copies is None else with_copies(tensors, copies)
    nodes = tensors.node_ids.to(g.idtype, copy=True)
    blocks = []
    for block in tensors.blocks:
        made = _block(g, nodes, block, tensors.ids_of(block.edge_ids))
        if weighted:
            made.edata["edge_weights"] = _of_mean_one(block)
        blocks.append(made)
    return nodes, blocks, tensors.x


def _block(g: Any, nodes: Tensor, block: Block, edge_ids: Tensor) -> Any:
    ((source, edge, destination),) = g.canonical_etypes
    made = dgl.create_block(
        {(source, edge, destination): ("csc", _offsets(block, g.idtype))},
        num_src_nodes={source: block.num_src},
        num_dst_nodes={destination: block.num_dst},
    )
    ends = [nodes[: block.num_src]], [nodes[: block.num_dst]]
    return _with_features(made, g, dgl.utils.extract_node_subframes_for_block(g, *ends), edge_ids)


def subgraph_of(g: Any, batch: MiniBatch, layout: str = "csc") -> tuple[Tensor, Any, Tensor | None]:
    """The vertices (S,) of a batch whose outermost block is square, the graph of its edges, and the features that were gathered.

    ``layout`` is "csr" where the edges were turned round.
    """
    tensors: MiniBatch = batch.to("cpu")
    nodes, block = tensors.node_ids.to(g.idtype, copy=True), tensors.blocks[0]
    made = dgl.heterograph({g.canonical_etypes[0]: (layout, _offsets(block, g.idtype))}, {g.ntypes[0]: len(nodes)})
    frames = dgl.utils.extract_node_subframes(g, [nodes])
    return nodes, _with_features(made, g, frames, tensors.ids_of(block.edge_ids)), tensors.x


def _offsets(block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """As DGL takes compressed columns: of one dtype, and without ids of edges, which count as they stand."""
    return block.indptr.to(dtype, copy=True), block.indices.to(dtype, copy=True), torch.empty(0, dtype=dtype)


def _with_features(made: Any, g: Any, node_frames: Any, edge_ids: Tensor) -> Any:
    edge_frames = dgl.utils.extract_edge_subframes(g, [edge_ids.to(g.idtype, copy=True)])
    dgl.utils.set_new_frames(made, node_frames=node_frames, edge_frames=edge_frames)
    return made


def _of_mean_one(block: Block) -> Tensor:
    """(M,) the weights, divided by the mean of those of their destination."""
    weights: Tensor = block.weights
    degrees: Tensor = block.indptr.long().diff()
    destinations = torch.repeat_interleave(torch.arange(block.num_dst), degrees)
    sums = weights.new_zeros(block.num_dst).index_add_(0, destinations, weights)
    return weights * (degrees / sums)[destinations]
