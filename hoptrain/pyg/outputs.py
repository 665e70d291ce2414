"""A mini-batch as PyG's ``SamplerOutput``, one of typed edges as its ``HeteroSamplerOutput``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import Block


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
    return SamplerOutput(
        node=_owned(tensors.node_ids),
        row=_owned(outermost.indices),
        col=_destinations(outermost),
        edge=_owned(outermost.edge_ids),
        batch=_owned(tensors.extra["trees"]) if tells_trees else None,
        num_sampled_nodes=_steps([batch.num_seeds, *(hop.num_src for hop in hops)]) if tells_hops else None,
        num_sampled_edges=_steps([hop.num_edges for hop in hops]) if tells_hops else None,
    )


def as_typed_output(batch: HeteroMiniBatch, *, tells_trees: bool, tells_hops: bool = True) -> HeteroSamplerOutput:
    """The same of typed edges, each type's by themselves. ``extra`` of a batch with trees has those of type T as ``trees.T``."""
    steps = {kind: _steps([number[kind] for number in batch.node_counts]) for kind in batch.node_ids}
    edge_steps = {relation: _steps([hop[relation].num_edges for hop in batch.blocks[::-1]]) for relation in batch.blocks[0]}
    tensors: HeteroMiniBatch = batch.to("cpu")
    outermost = tensors.blocks[0]
    return HeteroSamplerOutput(
        node={kind: _owned(ids) for kind, ids in tensors.node_ids.items()},
        row={relation: _owned(block.indices) for relation, block in outermost.items()},
        col={relation: _destinations(block) for relation, block in outermost.items()},
        edge={relation: _owned(block.edge_ids) for relation, block in outermost.items()},
        batch={kind: _owned(tensors.extra[f"trees.{kind}"]) for kind in tensors.node_ids} if tells_trees else None,
        num_sampled_nodes=steps if tells_hops else None,
        num_sampled_edges=edge_steps if tells_hops else None,
    )


def _destinations(block: Block) -> Tensor:
    """(M,) the destination of each edge."""
    return torch.repeat_interleave(torch.arange(block.num_dst), block.indptr.diff(), output_size=block.num_edges)


def _steps(totals: list[int]) -> list[int]:
    """By how much each is more than the one before."""
    steps: list[int] = np.diff([0, *totals]).tolist()
    return steps


def _owned(ids: Tensor) -> Tensor:
    """As int64, not in the memory of a slot, which whoever keeps a batch would hold."""
    return ids.to(torch.int64, copy=True)
