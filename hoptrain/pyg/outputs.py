"""A mini-batch as PyG's ``SamplerOutput``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import SamplerOutput

from hoptrain.samplers import MiniBatch


def as_output(batch: MiniBatch, *, tells_trees: bool, tells_hops: bool) -> SamplerOutput:
    """With int64 tensors of its own; edges hop by hop, within a hop by destination; edge ids are places in the graph's ``indices``.

    Args:
        batch: with nested blocks, so that the outermost one has all edges.
        tells_trees: whether ``batch`` is to say in whose tree a node is.
        tells_hops: whether the blocks are hops, of which nodes and edges are counted.
    """
    tensors: MiniBatch = batch.to("cpu")
    hops = tensors.blocks[::-1]
    outermost = tensors.blocks[0]
    destinations = torch.arange(outermost.num_dst)
    return SamplerOutput(
        node=_owned(tensors.node_ids),
        row=_owned(outermost.indices),
        col=torch.repeat_interleave(destinations, outermost.indptr.diff(), output_size=outermost.num_edges),
        edge=_owned(outermost.edge_ids),
        batch=_owned(tensors.extra["trees"]) if tells_trees else None,
        num_sampled_nodes=np.diff([0, batch.num_seeds, *(hop.num_src for hop in hops)]).tolist() if tells_hops else None,
        num_sampled_edges=np.diff([0, *(hop.num_edges for hop in hops)]).tolist() if tells_hops else None,
    )


def _owned(ids: Tensor) -> Tensor:
    """As int64, not in the memory of a slot, which whoever keeps a batch would hold."""
    return ids.to(torch.int64, copy=True)
