"""Seeds that stand in a batch several times: DGL's loaders ask for such where ranks are padded."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, MiniBatch


class Copies(NamedTuple):
    """Which seed is which.

    Attributes:
        place: (B,) int64, for each seed asked for its number among the distinct ones, which stand in order of first appearance.
        first: (D,) int64, for each distinct one where it stands first.
    """

    place: Array
    first: Array


def distinct(seeds: Array) -> tuple[Array, Copies | None]:
    """The distinct seeds in order of first appearance, and which is which; None where all are distinct."""
    values, first, place = np.unique(seeds, return_index=True, return_inverse=True)
    if len(values) == len(seeds):
        return seeds, None
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], Copies(rank[place], first[order])


def with_copies(batch: MiniBatch, copies: Copies) -> MiniBatch:
    """A batch of tensors with every seed as often as it was asked for: each copy has the edges of the first one, which alone is a source."""
    place, first = torch.from_numpy(copies.place), torch.from_numpy(copies.first)
    old_of = torch.cat([place, torch.arange(len(first), len(batch.node_ids))])
    new_of = torch.cat([first, torch.arange(len(place), len(old_of))])
    more = len(place) - len(first)
    return replace(
        batch,
        node_ids=batch.node_ids[old_of],
        x=None if batch.x is None else batch.x[old_of],
        blocks=tuple(_rows(block, old_of[: block.num_dst + more], new_of) for block in batch.blocks),
        num_seeds=len(place),
        nested=False,
    )


def _rows(block: Block, old_of: Tensor, new_of: Tensor) -> Block:
    """The rows ``old_of`` (N,) of a block, with ``new_of`` each source in its place."""
    begins, degrees = block.indptr[:-1][old_of].long(), block.indptr.diff()[old_of].long()
    ends = degrees.cumsum(0)
    edges = torch.arange(int(degrees.sum())) + torch.repeat_interleave(begins - (ends - degrees), degrees)
    return Block(
        indptr=torch.cat([ends.new_zeros(1), ends]),
        indices=new_of[block.indices[edges].long()],
        edge_ids=block.edge_ids[edges],
        num_src=block.num_src + len(old_of) - block.num_dst,
        weights=None if block.weights is None else block.weights[edges],
    )
