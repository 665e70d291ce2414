"""A mini-batch as PyG's ``SamplerOutput``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import SamplerOutput

from hoptrain.engine.arrays import Array
from hoptrain.samplers import MiniBatch


class Copies(NamedTuple):
    """Seeds of which some are asked for several times.

    Attributes:
        place: (B,) int64, for each seed asked for its number among the distinct ones, which stand in order of first appearance.
        first: (D,) int64, for each distinct one where it stands first.
    """

    place: Array
    first: Array


def distinct_seeds(seeds: Array) -> tuple[Array, Copies | None]:
    """The distinct seeds in order of first appearance, and which is which; None where all are distinct."""
    values, first, place = np.unique(seeds, return_index=True, return_inverse=True)
    if len(values) == len(seeds):
        return seeds, None
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], Copies(rank[place], first[order])


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


def with_copies(out: SamplerOutput, copies: Copies) -> SamplerOutput:
    """With every seed as often as it was asked for: each copy has the edges of the first one, which alone is a source."""
    place, first = torch.from_numpy(copies.place), torch.from_numpy(copies.first)
    more = len(place) - len(first)
    new_id = torch.cat([first, torch.arange(len(first), len(out.node)) + more])
    degrees = torch.bincount(out.col[out.col < len(first)], minlength=len(first))
    of_seeds = int(degrees.sum())  # edges into the seeds stand first
    begins = (degrees.cumsum(0) - degrees)[place]
    sizes = degrees[place]
    number = torch.arange(int(sizes.sum())) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    edges = torch.cat([torch.repeat_interleave(begins, sizes) + number, torch.arange(of_seeds, len(out.col))])
    out.node = torch.cat([out.node[: len(first)][place], out.node[len(first) :]])
    out.row = new_id[out.row[edges]]
    out.col = torch.cat([torch.repeat_interleave(torch.arange(len(place)), sizes), new_id[out.col[of_seeds:]]])
    out.edge = out.edge[edges]
    if out.num_sampled_nodes is not None:
        out.num_sampled_nodes[0] += more
        out.num_sampled_edges[0] += int(sizes.sum()) - of_seeds
    return out
