"""A mini-batch as PyG's ``SamplerOutput``, one of heterogeneous edges as its ``HeteroSamplerOutput``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from hoptrain.engine.arrays import Array
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import Block


def as_output(batch: MiniBatch, *, tells_trees: bool, tells_hops: bool) -> SamplerOutput:
    """With int64 tensors of its own; edges hop by hop, within a hop by destination; edge ids are places in the graph's ``indices``.

    Args:
        batch: with nested blocks, so that the outermost one has all edges.
        tells_trees: whether ``batch`` is to say in whose tree a node is.
        tells_hops: whether the blocks are hops, of which nodes and edges are counted.
    """
    hops = batch.blocks[::-1]
    outermost = batch.blocks[0]
    return SamplerOutput(
        node=_owned(batch.node_ids),
        row=_owned(outermost.indices),
        col=_destinations(outermost),
        edge=_owned(outermost.edge_ids),
        batch=_owned(batch.extra["trees"]) if tells_trees else None,
        num_sampled_nodes=_steps([batch.num_seeds, *(hop.num_src for hop in hops)]) if tells_hops else None,
        num_sampled_edges=_steps([hop.num_edges for hop in hops]) if tells_hops else None,
    )


def as_hetero_output(batch: HeteroMiniBatch, *, tells_trees: bool, tells_hops: bool = True) -> HeteroSamplerOutput:
    """The same of heterogeneous edges, each type's by themselves. ``extra`` of a batch with trees has those of type T as ``trees.T``."""
    steps = {kind: _steps([number[kind] for number in batch.node_counts]) for kind in batch.node_ids}
    edge_steps = {relation: _steps([hop[relation].num_edges for hop in batch.blocks[::-1]]) for relation in batch.blocks[0]}
    outermost = batch.blocks[0]
    return HeteroSamplerOutput(
        node={kind: _owned(ids) for kind, ids in batch.node_ids.items()},
        row={relation: _owned(block.indices) for relation, block in outermost.items()},
        col={relation: _destinations(block) for relation, block in outermost.items()},
        edge={relation: _owned(block.edge_ids) for relation, block in outermost.items()},
        batch={kind: _owned(batch.extra[f"trees.{kind}"]) for kind in batch.node_ids} if tells_trees else None,
        num_sampled_nodes=steps if tells_hops else None,
        num_sampled_edges=edge_steps if tells_hops else None,
    )


def _destinations(block: Block) -> Tensor:
    """(M,) the destination of each edge."""
    if isinstance(block.indptr, Tensor):
        numbers = torch.arange(block.num_dst, device=block.indptr.device)
        return numbers.repeat_interleave(block.indptr.diff(), output_size=block.num_edges)
    return torch.from_numpy(np.repeat(np.arange(block.num_dst), np.diff(block.indptr)))


def _steps(totals: list[int]) -> list[int]:
    """By how much each is more than the one before."""
    return [after - before for before, after in pairwise([0, *totals])]


def _owned(ids: Array | Tensor) -> Tensor:
    """A copy as int64. NumPy makes it: of an array of this size torch's threads are no faster, and wait for each other.

    A tensor on a GPU is the batch's own, and stays what it is if its ids are int64.
    """
    if isinstance(ids, Tensor):
        return ids.long()
    return torch.from_numpy(ids.astype(np.int64))
